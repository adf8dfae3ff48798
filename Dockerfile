# The pinned image: `nox -s image -- ENV` builds it, with the labels; docs/image.md says how to run it.
# A stage an environment, each with nothing but what its lock pins by hash; the last stage has what runs, and no more.

ARG BASE_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
ARG PYTHON=3.11

FROM ${BASE_IMAGE} AS base
ARG BASE_IMAGE
ARG PYTHON
ARG STAGE
# By this a stage is found, and taken away, that a failed build of buildah's left behind. What is kept has it empty, and
# so have a Docker engine's stages, whose cache then serves for the next commit too.
LABEL dflash.stage="${STAGE}"
RUN command -v "python${PYTHON}" >/dev/null \
    || { echo "error: the base ${BASE_IMAGE} has $(python3 --version 2>/dev/null || echo "no Python"), not Python ${PYTHON}" >&2; exit 1; }
WORKDIR /opt/dflash

# The tools (nox, uv) build the others. `.build` has this build's package index and wheels, where it needs any; it and
# everything else in these stages stays behind.
FROM base AS tools
ARG PYTHON
ENV PYTHONHASHSEED=0 \
    UV_NO_CACHE=1
COPY noxfile.py .buil[d] .build/
COPY envs envs/
COPY harness/*.py harness/
COPY harness/pin harness/pin/
RUN "python${PYTHON}" -m harness.pin.image.inside tools

FROM tools AS harness
ARG PYTHON
RUN "python${PYTHON}" -m harness.pin.image.inside harness

FROM tools AS data
ARG PYTHON
RUN "python${PYTHON}" -m harness.pin.image.inside data

FROM tools AS training
ARG PYTHON
ARG ENV
RUN "python${PYTHON}" -m harness.pin.image.inside "${ENV:?name an environment: --build-arg ENV=cpu}"

FROM tools AS server-environment
ARG PYTHON
RUN "python${PYTHON}" -m harness.pin.image.inside server

# MLflow's server, as compose.yaml starts it: nothing of the harness, and no compiler.
FROM base AS server
COPY --from=server-environment /opt/dflash/.harness .harness/
RUN ln -s /opt/dflash/.harness/envs/server-*/bin bin \
    && mkdir /var/lib/mlflow \
    && chown 1000:1000 /var/lib/mlflow
ENV PATH="/opt/dflash/bin:${PATH}" \
    HOME=/tmp \
    USER=mlflow \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/mlflow
USER 1000:1000
LABEL dflash.stage=""
CMD ["mlflow", "server"]

FROM base AS image
ARG PYTHON
# torch compiles with g++ (inductor) and gcc against Python's headers (Triton) while it trains. Python's own images have
# the headers; Debian's are in a package. The versions are those of Debian's stable release on the day of the build.
# hadolint ignore=DL3008
RUN set -- gcc g++ tini \
    && { [ -e "$("python${PYTHON}" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] \
        || set -- "$@" "python${PYTHON}-dev"; } \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig /var/cache/debconf /var/log/*

COPY --from=tools /opt/dflash/.harness .harness/
COPY --from=data /opt/dflash/.harness .harness/
COPY --from=harness /opt/dflash/.harness .harness/
COPY --from=training /opt/dflash/.harness .harness/
COPY noxfile.py pyproject.toml LICENSE ./
COPY envs envs/
COPY experiments experiments/
COPY harness harness/
RUN ln -s .harness/envs/harness-* .venv \
    && ln -s /opt/dflash/.venv/bin/harness /usr/local/bin/harness \
    && PYTHONHASHSEED=0 "python${PYTHON}" -m compileall -q --invalidation-mode unchecked-hash harness experiments \
    && mkdir -m 1777 /state /runs

ARG BASE_IMAGE
ARG ENV
ARG LOCK
ARG REVISION
ARG SOURCE_DATE
LABEL org.opencontainers.image.title="dflash-harness" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${SOURCE_DATE}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      dflash.stage="" \
      dflash.environment="${ENV}" \
      dflash.lock="${LOCK}"
# USER, because whoever it runs as need not be in /etc/passwd.
ENV HARNESS_ENVS=/opt/dflash/.harness/envs \
    HARNESS_STATE=/state \
    HARNESS_RUNS=/runs \
    HARNESS_IMAGE_ENVIRONMENT="${ENV}" \
    HARNESS_IMAGE_LOCK="${LOCK}" \
    HARNESS_IMAGE_REVISION="${REVISION}" \
    HOME=/state \
    USER=dflash \
    PYTHONDONTWRITEBYTECODE=1
VOLUME ["/state", "/runs"]
USER 1000:1000
# tini, because the kernel drops a SIGTERM to the first process of a container for as long as that has no handler.
ENTRYPOINT ["tini", "--", "harness"]
