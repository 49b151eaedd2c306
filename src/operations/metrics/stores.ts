import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Registry } from 'prom-client';
import type { MessageStore } from '../../../db/messages/store.ts';
import type { Registry as DeviceRegistry } from '../../../db/registry/index.ts';
import type { Config } from '../../core/config.ts';
import type { Keeping } from '../../messages/keeping.ts';
import { gauge, gaugeBy, histogram } from './exposing.ts';

const files = { database: '', wal: '-wal' } as const;

type Services = { messages: MessageStore; registry: DeviceRegistry; keeping: Keeping; config: Config };

/** Both stores: their files, their commits, what is in them. */
export function storeMetrics(registry: Registry, services: Services): void {
  const { messages, registry: entities, config } = services;
  histogram(registry, 'slipway_store_commit_seconds', 'How long COMMIT took: the disk.', () => [
    [{ store: 'messages' }, messages.writer.commits],
    [{ store: 'registry' }, entities.writer.commits],
  ]);
  gaugeBy(registry, 'slipway_store_file_bytes', 'Size of the files of a store.', ['store', 'file'], () =>
    Promise.all(
      (['messages', 'registry'] as const).flatMap((store) =>
        (['database', 'wal'] as const).map(
          async (file): Promise<[Record<string, string>, number]> => [
            { store, file },
            await sizeOf(join(config.dataDir, `${store}.db${files[file]}`)),
          ],
        ),
      ),
    ),
  );
  messageMetrics(registry, services);
}

/** 0 for a file that is not there. */
async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return 0;
  }
}

/** Of all accounts together. What the system or an empty store does not say is not a number. */
function messageMetrics(registry: Registry, { messages, keeping, config }: Services): void {
  const { maxBytes } = config.messages;
  gauge(registry, 'slipway_messages_bytes', 'Bytes of messages.db in use.', () => messages.size);
  gauge(registry, 'slipway_messages_max_bytes', 'Its cap, SLIPWAY_MESSAGES_MAX_BYTES; 0 means no cap.', () => maxBytes);
  gauge(
    registry,
    'slipway_messages_outbox_pending_bytes',
    'Bytes of messages that bridges have not delivered yet.',
    () => messages.outboxPending,
  );
  gauge(registry, 'slipway_messages_points', 'Stored points.', () => messages.usage().points);
  gauge(registry, 'slipway_messages_logs', 'Stored log entries.', () => messages.usage().logs);
  gauge(registry, 'slipway_messages_oldest_timestamp_seconds', 'Time of the oldest of them, since 1970.', () => {
    const { oldest } = messages.usage();
    return oldest === null ? Number.NaN : oldest / 1000;
  });
  gauge(registry, 'slipway_messages_refused', '1 while messages are refused for want of space.', () =>
    messages.full ? 1 : 0,
  );
  const { share } = keeping;
  gauge(
    registry,
    'slipway_disk_share_bytes',
    'What each account may take on the disk; not a number while there is one account.',
    () => share.bytes ?? NaN,
  );
  gauge(
    registry,
    'slipway_disk_share_highest_use_bytes',
    'The most that any account takes on the disk, about.',
    () => share.highest,
  );
  gauge(
    registry,
    'slipway_disk_share_refused_accounts',
    'Accounts that are refused because they have taken their share of the disk.',
    () => share.above.size,
  );
  gauge(registry, 'slipway_disk_free_bytes', 'Free on the disk of the data directory.', () => keeping.diskFree ?? NaN);
}
