# Node, the packages that run, and the compiled program; not as root (docs/operations.md).
ARG NODE=26-bookworm-slim

FROM node:${NODE} AS build
WORKDIR /app
# Only packages from the lock file are fetched. Their compiled code is inside them, so no script has to run.
COPY .npmrc package.json package-lock.json ./
COPY cells/package.json cells/
COPY cli/package.json cli/
COPY console/package.json console/
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
# The console is built now: its packages do not run.
RUN npm run build && \
  npm ci --omit=dev --include-workspace-root --workspace=cells --workspace=cli --ignore-scripts --no-audit --no-fund

FROM node:${NODE}
LABEL org.opencontainers.image.title="Slipway" \
  org.opencontainers.image.description="Self-hosted device provisioning: REST API, MQTT broker and database in one process" \
  org.opencontainers.image.licenses="Apache-2.0"
# One arena of the allocator for all threads: what is freed does not stay with the thread that freed it.
ENV MALLOC_ARENA_MAX=1
ENV NODE_ENV=production SLIPWAY_HOST=0.0.0.0 SLIPWAY_DATA_DIR=/data
WORKDIR /app
COPY --from=build /app/LICENSE /app/package.json ./
COPY --from=build /app/bin ./bin
COPY --from=build /app/dist ./dist
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/cells/package.json ./cells/
COPY --from=build /app/cli/package.json ./cli/
# `docker compose exec slipway slipway account list`. Nothing but /data, and /backups by `slipway backup`, is ever written.
RUN ln -s /app/bin/slipway.cjs /usr/local/bin/slipway && install -d -m 700 -o 1000 -g 1000 /data /backups
# By number, so that an orchestrator sees that it is not root.
USER 1000:1000
VOLUME /data
EXPOSE 3000 1883 8883
STOPSIGNAL SIGTERM
# Live, not ready: what is unhealthy gets restarted, and that frees no disk; it would only cut off every device.
# Failures during the start period do not count: an upgrade of a large database takes a while.
HEALTHCHECK --interval=15s --timeout=5s --retries=3 --start-period=5m CMD ["slipway", "health"]
# No init next to it: Node handles SIGTERM and SIGINT itself, also as process 1, and starts no processes to be reaped.
CMD ["node", "dist/src/main.js"]
