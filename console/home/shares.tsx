/** Devices by state, by product and by firmware, as bars that lead to their lists. */
import { Link } from 'wouter-preact';
import { devicesWith, termText } from '../devices/filter/text.ts';
import { ShareList } from '../parts/charts/shares.tsx';
import { Panel } from '../parts/page/shown.tsx';
import { texts } from '../texts.ts';
import type { OverviewOf } from './read.ts';

const words = texts.home;
/** Of more, only the number is told. */
const maxShown = 6;

const ofVersion = (value: string | null) =>
  termText({ names: ['firmwareVersion'], operator: value === null ? 'none' : 'eq', value });

interface Share {
  name: string;
  href: string;
  count: number;
  online?: number;
}

export function Shares({ of: { byState, byProduct, byFirmware } }: { of: OverviewOf }) {
  return (
    <div class="stack">
      <Bars
        title={words.byState}
        shares={byState
          .filter(({ count }) => count > 0)
          .map(({ value, count, online }) => ({
            ...{ name: texts.devices.states[value] ?? value, href: `/devices?state=${value}`, count, online },
          }))}
      />
      <Bars
        title={words.byProduct}
        shares={byProduct.map(({ value, name, count, online }) => ({
          ...{ name, href: `/devices?product=${value}`, count, online },
        }))}
      />
      {byFirmware && (
        <Bars
          title={words.byFirmware}
          shares={byFirmware.map(({ value, count }) => ({
            ...{
              name: value ?? words.noFirmware,
              href: devicesWith(ofVersion(value)),
              count,
            },
          }))}
        />
      )}
    </div>
  );
}

function Bars({ title, shares }: { title: string; shares: readonly Share[] }) {
  return (
    <Panel title={title} aria-label={title}>
      {shares.length === 0 && <p class="soft">{words.noDevices}</p>}
      <ShareList
        of={shares.slice(0, maxShown).map(({ name, href, ...one }) => ({
          ...{ key: href, name: <Link href={href}>{name}</Link>, says: words.share(one.count, one.online), ...one },
        }))}
      />
      {shares.length > maxShown && <p class="small soft">{words.more(shares.length - maxShown)}</p>}
    </Panel>
  );
}
