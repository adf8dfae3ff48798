"""CUDA as installed: does every library belong to the CUDA that torch was built for, and does the driver run it?"""

from __future__ import annotations

from harness.pin.doctor.families import FAMILIES as FAMILIES
from harness.pin.doctor.families import Member as Member
from harness.pin.doctor.families import family_of as family_of
