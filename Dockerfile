# The service and the webhook in one image; the Deployments choose by command.
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/vreplica && /opt/vreplica/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY extender extender
COPY webhook webhook
COPY manifests manifests
RUN /opt/vreplica/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
COPY --from=build /opt/vreplica /opt/vreplica
ENV PATH=/opt/vreplica/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["vreplica"]
