/** What happened lately, by day. Of what happened alike the newest is shown, and the rest opens; a filter shows one kind. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { Ago } from '../parts/formats/ago.tsx';
import { dayText } from '../parts/formats/times.ts';
import { Select } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import type { OverviewOf } from './read.ts';

const words = texts.home;
type Row = OverviewOf['recent'][number];
/** Of a run the newest are shown, and the others are one row if they are more than a few. */
const shown = 2;
const many = 2;

/** One thing and many of it are the same kind of news. */
const kindOf = ({ kind }: Row): string => (kind === 'newDevice' ? 'newDevices' : kind === 'update' ? 'updates' : kind);

interface Run {
  day: string;
  rows: Row[];
}

/** Rows of one kind and one day that follow each other. */
function runsOf(rows: readonly Row[]): Run[] {
  const runs: Run[] = [];
  for (const row of rows) {
    const [last, day] = [runs.at(-1), dayText(row.time)];
    const [first] = last?.rows ?? [];
    if (first && last?.day === day && first.kind === row.kind) last.rows.push(row);
    else runs.push({ day, rows: [row] });
  }
  return runs;
}

export function Lately({ rows }: { rows: readonly Row[] }) {
  const [kind, setKind] = useState('');
  const kinds = [...new Set(rows.map(kindOf))];
  const chosen = kinds.includes(kind) ? kind : '';
  const runs = runsOf(rows.filter((row) => chosen === '' || kindOf(row) === chosen));
  const options = [['', words.everything] as const, ...kinds.map((one) => [one, words.kinds[one] ?? one] as const)];
  return (
    <section class="panel lately">
      <div class="row heading apart">
        <h2>{words.lately}</h2>
        {kinds.length > 1 && <Select label={texts.show} value={chosen} options={options} onText={setKind} />}
      </div>
      {rows.length === 0 ? (
        <p class="soft">{words.nothingLately}</p>
      ) : (
        <div aria-live="polite">
          {[...new Set(runs.map(({ day }) => day))].map((day) => (
            <section key={day} aria-label={day}>
              <h3>{day}</h3>
              {runs
                .filter((run) => run.day === day)
                .map(({ rows }) => (
                  <Rows key={keyOf(rows.at(-1))} of={rows} />
                ))}
            </section>
          ))}
        </div>
      )}
    </section>
  );
}

const keyOf = (row: Row | undefined) => `${row?.time}${row?.sentence}`;

function Rows({ of: rows }: { of: readonly Row[] }) {
  const [last] = rows;
  const isLong = rows.length > shown + many;
  const older = isLong ? rows.slice(shown) : [];
  return (
    <>
      <List of={isLong ? rows.slice(0, shown) : rows} />
      {last && isLong && (
        <details>
          <summary>{words.before[last.kind](older.length)}</summary>
          <List of={older} />
        </details>
      )}
    </>
  );
}

function List({ of: rows }: { of: readonly Row[] }) {
  return (
    <ul class="plainlist">
      {rows.map((row) => (
        <li key={keyOf(row)}>
          <span class="grow">
            <Sentence row={row} />
          </span>
          <span class="small soft">
            <Ago iso={row.time} />
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The sentence, in which the name of the thing leads to it. */
function Sentence({ row: { sentence, deviceId, serialNumber, jobId, rolloutId } }: { row: Row }) {
  if (jobId) return <Link href={`/factory/${jobId}`}>{sentence}</Link>;
  if (rolloutId) return <Link href={`/firmware/rollouts/${rolloutId}`}>{sentence}</Link>;
  const [before, after] = serialNumber ? sentence.split(serialNumber, 2) : [];
  if (!deviceId || before === undefined || after === undefined) return <>{sentence}</>;
  return (
    <>
      {before}
      <Link href={`/devices/${deviceId}`}>{serialNumber}</Link>
      {after}
    </>
  );
}
