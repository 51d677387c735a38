# The product's image: the controller, and the containers that bring artifacts into the store and into pods.
#
#   docker build -t registry.example.com/preheat:0.1.0 .
#
# BASE: any Debian-like image with Python 3.11 or later; the same one for both stages, since a virtual environment
# belongs to the Python that made it.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/operator.txt requirements/
# Everything is pinned and hashed, so nothing is left for pip to resolve.
RUN python3 -m venv /tmp/build \
 && /tmp/build/bin/pip install --no-deps --require-hashes --only-binary :all: -r requirements/build.txt \
 && python3 -m venv /venv \
 && /venv/bin/pip install --no-deps --require-hashes --only-binary :all: -r requirements/operator.txt
COPY LICENSE README.md pyproject.toml ./
COPY operator operator
COPY compiler_job compiler_job
# The wheel brings the compiler and the runtime too: they are copied out of it into other people's pods.
RUN /tmp/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
 && /venv/bin/pip install --no-deps /tmp/wheel/*.whl \
 && /venv/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
LABEL org.opencontainers.image.title="preheat" \
      org.opencontainers.image.description="Compiles PyTorch models ahead of time and starts pods hot." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /venv /venv
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 65532:65532
CMD ["python3", "-m", "preheat_operator.controller"]
