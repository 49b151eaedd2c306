/** Home: what runs, what needs attention, and what happened lately. It is read again every five seconds. */
import { Link } from 'wouter-preact';
import { can } from '../app/session.ts';
import { Spark } from '../parts/charts/spark.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Page, Waiting } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Attention } from './attention.tsx';
import { Lately } from './lately.tsx';
import { type OverviewOf, readOverview } from './read.ts';
import { Shares } from './shares.tsx';

const words = texts.home;
/** Milliseconds. */
const readEvery = 5000;

export function Home() {
  const { data, error, reload } = useLoad(readOverview, [], readEvery);
  if (!data) return <Waiting title={texts.places.home} error={error} />;
  return (
    <Page
      title={texts.places.home}
      actions={
        data.devices === 0 &&
        can('create', 'device') && (
          <Link class="button primary" href="/first-device">
            {words.begin}
          </Link>
        )
      }
    >
      <div class="stack">
        <Figures of={data} />
        <div class="aside">
          <div class="stack">
            <Attention rows={data.attention} onChanged={reload} />
            <Lately rows={data.recent} />
          </div>
          <Shares of={data} />
        </div>
      </div>
    </Page>
  );
}

/** Milliseconds between two values of the history, with some to spare. */
const historyGap = 3 * 300_000;
const number = new Intl.NumberFormat();
const rate = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

function Figures({ of: { online, devices, messages, refusals, history = [] } }: { of: OverviewOf }) {
  const line = (name: 'connected' | 'messages' | 'refusals') => {
    const points = history.map((one) => ({ time: Date.parse(one.time), value: one[name] ?? 0 }));
    // What is still being counted would look like a fall.
    return name === 'connected' ? points : points.slice(0, -1);
  };
  return (
    <ul class="values figures">
      <Figure
        label={words.onlineNow}
        href="/devices?connected=true"
        value={number.format(online)}
        of={words.ofDevices(devices)}
        points={line('connected')}
        says={words.lineOnline}
        foot={words.between(line('connected').map(({ value }) => value))}
      />
      {messages && (
        <Figure
          label={words.messages}
          href="/devices?connected=true"
          value={rate.format(messages.perSecond)}
          of={words.perSecond}
          points={line('messages')}
          says={words.lineMessages}
          foot={words.messagesOfDay(messages.lastDay)}
        />
      )}
      {refusals && (
        <Figure
          label={words.refused}
          // The list is of the whole account; an end-user finds its own at its devices.
          href={messages ? '/home/refusals' : '/devices'}
          value={number.format(refusals.lastDay)}
          of={words.inDay}
          points={line('refusals')}
          says={words.lineRefusals}
          foot={refusals.lastDay === 0 ? words.nothingRefused : ''}
        />
      )}
    </ul>
  );
}

function Figure({
  label,
  href,
  value,
  of,
  points,
  says,
  foot,
}: {
  label: string;
  href: string;
  value: string;
  of: string;
  points: { time: number; value: number }[];
  says: string;
  foot: string;
}) {
  const [first, last] = [points[0], points.at(-1)];
  return (
    <li class="value">
      <Link href={href}>{label}</Link>
      <p class="figure">
        {value} <span class="unit">{of}</span>
      </p>
      {first && last && points.length > 1 ? (
        <Spark points={points} from={first.time} to={last.time} gap={historyGap} label={says} zero />
      ) : (
        <div class="spark" />
      )}
      <p class="foot">
        <span>{foot}</span>
        {points.length > 1 && <span>{words.day}</span>}
      </p>
    </li>
  );
}
