"""CUDA: families by table, torch's own build and needs, and the driver."""
