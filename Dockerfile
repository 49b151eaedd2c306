# Small, non-root, one process. The native modules are compiled in the first stage and copied.
FROM node:22-bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3 make g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY . .
RUN npm ci && npm prune --omit=dev --ignore-scripts

FROM node:22-bookworm-slim
ENV NODE_ENV=production SLIPWAY_HOST=0.0.0.0 SLIPWAY_DATA_DIR=/data
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist/src ./dist/src
COPY --from=build /app/dist/db ./dist/db
COPY --from=build /app/dist/chunks ./dist/chunks
RUN mkdir /data && chown node:node /data
USER node
VOLUME /data
EXPOSE 3000 1883 8883
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["node", "-e", "require('node:net').connect(process.env.SLIPWAY_HTTP_PORT ?? 3000).on('connect', () => process.exit(0)).on('error', () => process.exit(1))"]
CMD ["node", "dist/src/main.js"]
