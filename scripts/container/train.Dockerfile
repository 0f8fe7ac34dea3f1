# Training and all other commands on NVIDIA GPUs. From the root of the repository:
#
#   docker build -f scripts/container/train.Dockerfile -t nmt-train .
#   docker run --gpus all --shm-size 2g --user "$(id -u):$(id -g)" -v "$PWD:/work" nmt-train train --config multi30k
FROM python:3.13-slim
# The compiler is for the native engine and for compiled layers.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# On Linux, the package torch contains CUDA. It is a layer of its own, because it changes rarely.
RUN python3 -m venv /opt/nmt
COPY requirements.lock /source/
RUN /opt/nmt/bin/pip install --no-cache-dir -r /source/requirements.lock
COPY . /source
RUN /opt/nmt/bin/pip install --no-cache-dir --no-deps /source
ENV PATH=/opt/nmt/bin:/usr/local/bin:/usr/bin:/bin XDG_CACHE_HOME=/tmp/cache PYTHONUNBUFFERED=1
WORKDIR /work
ENTRYPOINT ["nmt"]
