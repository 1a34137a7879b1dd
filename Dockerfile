# One image for the operator, the engines, the TE-shells and the frontends; each pod names its own command.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY dataplane dataplane
COPY fabric fabric
COPY cluster cluster
COPY e2e e2e
COPY bench bench
COPY helm helm
COPY examples examples
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.12-slim
RUN groupadd --gid 65532 xdeepserve \
    && useradd --uid 65532 --gid 65532 --no-create-home --shell /usr/sbin/nologin xdeepserve
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels xdeepserve
COPY examples/models/austen-deepseek-v3 /models/austen-deepseek-v3
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
CMD ["python", "-m", "xdeepserve_operator"]
