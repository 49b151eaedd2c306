/** The unit in hand: its label to print, its flash file, and whether it works. */
import { useState } from 'preact/hooks';
import { Code } from '../parts/codes/code.tsx';
import { useLoad } from '../parts/data/load.ts';
import { download } from '../parts/formats/download.ts';
import { ActionButton, Button, ErrorNote, Select } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import type { Kept } from './kept.ts';
import { type Format, formats, readFlashFile, readLabel, type Unit, type Verdict, verifyUnit } from './units.ts';

const words = texts.station;
/** Seconds for the unit to connect and publish. */
const patience = 30;

interface Props {
  kept: Kept;
  change: (changes: Partial<Kept>) => void;
  next: () => void;
}

export function UnitInHand({ kept, change, next }: Props) {
  const { unit, verdict, format } = kept;
  if (!unit) return null;
  return (
    <>
      <div class="row apart unithead">
        <h2 class="mono">{unit.serialNumber}</h2>
        <Button label={words.next} class={verdict?.passed ? 'primary' : undefined} onClick={next} />
      </div>
      <div class="grid">
        <Label unit={unit} />
        <Flash unit={unit} format={format} onFormat={(format) => change({ format })} />
        <Verify unit={unit} verdict={verdict} onVerdict={(verdict) => change({ verdict })} />
      </div>
    </>
  );
}

function Label({ unit }: { unit: Unit }) {
  const { data, error } = useLoad(() => readLabel(unit), [unit.jobId]);
  return (
    <section class="panel">
      <h3>{words.label}</h3>
      <ErrorNote error={error} />
      {data && (
        <>
          <img class="unitlabel" src={data} alt={words.labelOf(unit.serialNumber)} />
          <Button label={words.print} onClick={() => print()} />
        </>
      )}
    </section>
  );
}

function Flash({ unit, format, onFormat }: { unit: Unit; format: Format; onFormat: (format: Format) => void }) {
  const { data, error } = useLoad(() => readFlashFile(unit, format), [unit.jobId, format]);
  return (
    <section class="panel">
      <h3>{words.flash}</h3>
      <Select
        label={words.format}
        value={format}
        options={formats.map((one) => [one, words.formats[one]] as const)}
        onText={(text) => onFormat(formats.find((one) => one === text) ?? 'json')}
      />
      <ErrorNote error={error} />
      {data && (
        <>
          <Button
            label={words.download(data.name)}
            onClick={() => download(data.name, new Blob([data.text], { type: 'application/octet-stream' }))}
          />
          <details>
            <summary>{words.show}</summary>
            <Code label={words.flash} text={data.text} />
          </details>
        </>
      )}
    </section>
  );
}

function Verify({
  unit,
  verdict,
  onVerdict,
}: {
  unit: Unit;
  verdict: Verdict | undefined;
  onVerdict: (verdict: Verdict | undefined) => void;
}) {
  const [running, setRunning] = useState(false);
  const [error, setError] = useState<unknown>();
  const verify = async () => {
    setRunning(true);
    setError(undefined);
    onVerdict(undefined);
    const { passed, connected, published } = await verifyUnit(unit, patience).finally(() => setRunning(false));
    onVerdict({ passed, connected, published });
  };
  return (
    <section class="panel">
      <h3>{words.verify}</h3>
      <p>{words.verifyHint(patience)}</p>
      <div role="status">
        {running && <p class="waiting">{words.verifying}</p>}
        {verdict && (
          <div class={verdict.passed ? 'verdict good' : 'verdict bad'}>
            <b>{verdict.passed ? words.pass : words.fail}</b>
            <p>{verdict.passed ? words.passed : words.failed(verdict.connected, verdict.published)}</p>
          </div>
        )}
      </div>
      <ErrorNote error={error} />
      <ActionButton
        label={verdict ? words.verifyAgain : words.verifyVerb}
        act={verify}
        kind={verdict?.passed ? 'plain' : 'primary'}
        onError={setError}
      />
    </section>
  );
}
