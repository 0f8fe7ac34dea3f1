# The server of translations with the pretrained models. It needs no network. From the root of the repository:
#
#   docker build -f scripts/container/serve.Dockerfile -t nmt-serve .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:5000:5000 nmt-serve
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /source
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir hatchling
RUN PYTHON=/opt/build/bin/python /source/scripts/build_dists.sh /dist
RUN python3 -m venv /opt/nmt && /opt/nmt/bin/pip install --no-cache-dir "$(echo /dist/nmtkit_core-*.whl)[serve]"
# The server installs nothing.
RUN /opt/nmt/bin/pip uninstall -y pip

FROM python:3.13-slim
COPY --from=build /opt/nmt /opt/nmt
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent nmt
# The cache is for what nmt measures and compiles. The home directory does not exist.
ENV PATH=/opt/nmt/bin:/usr/local/bin:/usr/bin:/bin XDG_CACHE_HOME=/tmp/cache HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /tmp
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["nmt", "serve", "--host", "0.0.0.0", "--port", "5000"]
