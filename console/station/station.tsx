/** A station in the browser: one unit after another, from its serial number to its label, its flash file and its verdict. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { me, resume, signOut } from '../app/session.ts';
import { canScan, Scan } from '../parts/codes/scan.tsx';
import { Button, Field, Form, type Values } from '../parts/forms/form.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { Badge, Help, Panel, Time } from '../parts/page/page.tsx';
import { useTitle } from '../parts/page/title.ts';
import { SignInAgain } from '../sign-in/again.tsx';
import { texts } from '../texts.ts';
import { type Kept, keep, putAside, readKept } from './kept.ts';
import { StationForm, StationSignIn } from './sign-in.tsx';
import { UnitInHand } from './unit.tsx';
import { makeUnit } from './units.ts';

const words = texts.station;

/** The place of a station: it signs in where anybody else is. */
export function Station() {
  const station = me.value?.station;
  if (!station || !me.value) return <StationSignIn />;
  const { id } = me.value;
  return (
    <>
      <Line key={id} id={id} />
      <SignInAgain>
        <StationForm id={id} />
      </SignInAgain>
    </>
  );
}

function Line({ id }: { id: string }) {
  const [kept, setKept] = useState(() => readKept(id));
  const change = (changes: Partial<Kept>) =>
    setKept((before) => {
      const after = { ...before, ...changes };
      keep(id, after);
      return after;
    });
  const next = () =>
    setKept((before) => {
      const after = putAside(before);
      keep(id, after);
      return after;
    });
  useTitle(me.value?.station?.name ?? words.title);
  return (
    <main class="stack station">
      <Head />
      {kept.unit ? (
        <UnitInHand key={kept.unit.jobId} kept={kept} change={change} next={next} />
      ) : (
        <NextUnit onMade={(unit) => change({ unit, verdict: undefined })} />
      )}
      {kept.last.length > 0 && <Last last={kept.last} />}
    </main>
  );
}

function Head() {
  const { name = '', productName = '', madeDevices = 0, maxDevices = 0, expiresAt = '' } = me.value?.station ?? {};
  return (
    <header class="row apart stationhead">
      <div>
        <p class="brand">
          <Icon name="factory" /> {name}
        </p>
        <h1>{productName}</h1>
      </div>
      <div class="counter">
        <p class="figure">{words.madeOf(madeDevices, maxDevices)}</p>
        <progress value={madeDevices} max={maxDevices} aria-label={words.made} />
        <p class="small soft">
          {texts.validUntil} <Time iso={expiresAt} />
        </p>
      </div>
      <Help />
      <Button label={texts.signOut} onClick={() => signOut()} />
    </header>
  );
}

/** Scanners type, and end with Enter: the field has the focus from the start. */
function NextUnit({ onMade }: { onMade: (unit: Awaited<ReturnType<typeof makeUnit>>) => void }) {
  const form = useRef<HTMLDivElement>(null);
  const [scanning, setScanning] = useState(false);
  const [scanned, setScanned] = useState('');
  // Before the next key: a frame later it would be lost.
  useLayoutEffect(() => form.current?.querySelector('input')?.focus(), [scanning]);
  const { madeDevices = 0, maxDevices = 0 } = me.value?.station ?? {};
  const make = async ({ serialNumber = '' }: Values) => {
    const unit = await makeUnit(serialNumber.trim());
    onMade(unit);
    // The number that is left.
    await resume();
  };
  return (
    <section class="panel narrow" ref={form}>
      {scanning ? (
        <Scan
          onText={(text) => {
            setScanned(text);
            setScanning(false);
          }}
          onClose={() => setScanning(false)}
        />
      ) : (
        <>
          {madeDevices >= maxDevices && <p class="note warn">{words.full}</p>}
          <Form save={make} verb={words.make}>
            <Field
              key={scanned}
              label={texts.serialNumber}
              name="serialNumber"
              defaultValue={scanned}
              required
              maxLength={255}
              autoComplete="off"
              spellcheck={false}
              hint={words.serialHint}
            />
          </Form>
          {canScan() && <Button label={texts.scan.verb} onClick={() => setScanning(true)} />}
        </>
      )}
    </section>
  );
}

function Last({ last }: Pick<Kept, 'last'>) {
  return (
    <Panel title={words.last}>
      <ul class="plainlist">
        {last.map(({ serialNumber, passed }) => (
          <li key={serialNumber}>
            <span class="mono">{serialNumber}</span>
            {passed === undefined ? (
              <Badge text={words.notVerified} />
            ) : (
              <Badge kind={passed ? 'good' : 'bad'} text={passed ? words.pass : words.fail} />
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}
