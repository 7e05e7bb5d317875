# Two images: `base` measures, sweeps and runs nodes of the reference broker; `all` also makes reports, reaches other
# hosts over SSH, and uses object storages.
#
#   docker build --target base --tag perftest .
#   docker build --target all --tag perftest:all .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hdr_buckets hdr_buckets
COPY infra infra
COPY perftest perftest
COPY reference_broker reference_broker
COPY reports reports
COPY workloads workloads
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS base
ENV PYTHONUNBUFFERED=1
COPY constraints.txt /wheels/
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --constraint /wheels/constraints.txt /wheels/*.whl \
    && useradd --create-home --uid 1000 perftest \
    && install --directory --owner perftest --group perftest /work /broker /description
USER perftest
WORKDIR /work
ENTRYPOINT ["perftest"]
CMD ["--help"]

FROM base AS all
USER root
RUN for wheel in /wheels/*.whl; do \
      pip install --no-cache-dir --constraint /wheels/constraints.txt "${wheel}[all]" || exit 1; \
    done
USER perftest
