# Only what runs: Node, one program with its threads, two compiled modules; not as root (docs/operations.md).
# Both stages are the same Node, because the modules that the first one compiles are loaded by the second.
ARG NODE=22-bookworm-slim

FROM node:${NODE} AS build
RUN apt-get update \
  && apt-get install -y --no-install-recommends g++ make python3 \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# From the sources in the packages and the headers of this image: nothing is fetched but packages, by the lock file.
ENV npm_config_build_from_source=true npm_config_nodedir=/usr/local
COPY .npmrc package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund && npm rebuild argon2 better-sqlite3
COPY LICENSE build.mjs ./
COPY src ./src
COPY broker ./broker
COPY db ./db
RUN node build.mjs --image /image

FROM node:${NODE}
LABEL org.opencontainers.image.title="Slipway" \
  org.opencontainers.image.description="Self-hosted device provisioning: REST API, MQTT broker and database in one process" \
  org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production SLIPWAY_HOST=0.0.0.0 SLIPWAY_DATA_DIR=/data
WORKDIR /app
COPY --from=build /image ./
# `docker compose exec slipway slipway account list`. Nothing but /data, and /backups by `slipway backup`, is ever written.
RUN ln -s /app/dist/src/cli.js /usr/local/bin/slipway && install -d -m 700 -o node -g node /data /backups
# By number, so that an orchestrator sees that it is not root.
USER 1000:1000
VOLUME /data
EXPOSE 3000 1883 8883
STOPSIGNAL SIGTERM
# Live, not ready: what is unhealthy gets restarted, and that frees no disk; it would only cut off every device.
# Failures during the start period do not count: an upgrade of a large database takes a while.
HEALTHCHECK --interval=15s --timeout=5s --retries=3 --start-period=5m CMD ["slipway", "health"]
# No init beside it: Node handles SIGTERM and SIGINT itself, also as process 1, and starts no processes to be reaped.
CMD ["node", "dist/src/main.js"]
