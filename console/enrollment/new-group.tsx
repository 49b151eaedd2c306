/** A new group, step by step: what its devices have, where they belong and what they get, and what bounds it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Form, type Values } from '../parts/form.tsx';
import { texts } from '../texts.ts';
import { changesOf, LimitFields, newAuthority, PlaceFields, type Proof } from './group-fields.tsx';
import { makeIssuer } from './new-authority.tsx';
import type { Group } from './read.ts';
import { type GroupSecrets, SecretsDialog, secretsIn } from './secrets.tsx';

const words = texts.enrollment;
const steps = words.steps.length;

export function NewGroup({ onDone, onClose }: { onDone: (id: string) => void; onClose: () => void }) {
  const [step, setStep] = useState(0);
  const [proof, setProof] = useState<Proof>('claimSecret');
  const [issues, setIssues] = useState('secret');
  const [values, setValues] = useState<Values>({});
  const [made, setMade] = useState<{ group: Group; secrets: GroupSecrets }>();
  const list = useRef<HTMLOListElement>(null);
  const before = useRef(step);
  // The button has gone with the step before; the next thing to do is the first field.
  useLayoutEffect(() => {
    if (before.current === step) return;
    before.current = step;
    list.current?.parentElement?.querySelector<HTMLElement>('form input, form select')?.focus();
  }, [step]);
  if (made) return <SecretsDialog {...made} onClose={() => onDone(made.group.id)} />;
  const make = async (all: Values) => {
    const isNew = issues !== 'secret' && all.certificateAuthorityId === newAuthority;
    const chosen: Values = { ...all };
    if (isNew) chosen.certificateAuthorityId = await makeIssuer(`${words.issuerOf} ${all.name}`);
    // Asked once more after a refusal, it has its CA.
    setValues(chosen);
    const body = { accountId: accountId.value, proof, ...changesOf(chosen) };
    const { enrollmentGroup: group } = await unwrap(api.POST('/api/v1/enrollment-groups', { body }));
    setMade({ group, secrets: secretsIn(group) });
  };
  const save = async (given: Values, form: HTMLFormElement) => {
    const own = new Set(new FormData(form).keys());
    const others = Object.entries(values).filter(([name]) => !own.has(name));
    const all = { ...Object.fromEntries(others), ...given };
    if (step === steps - 1) return make(all);
    setValues(all);
    setStep(step + 1);
  };
  return (
    <Dialog title={words.new['']} onClose={onClose} wide>
      <ol class="steps" ref={list}>
        {words.steps.map((name, at) => (
          <li key={name} aria-current={at === step ? 'step' : undefined}>
            {name}
          </li>
        ))}
      </ol>
      <Form
        key={step}
        save={save}
        verb={step === steps - 1 ? texts.create : words.next}
        begun={Object.keys(values).length > 0}
        onCancel={onClose}
      >
        {step === 0 && <Hardware proof={proof} onProof={setProof} />}
        {step === 1 && (
          <PlaceFields
            proof={proof}
            values={values}
            issues={issues}
            onIssues={setIssues}
            mayMake={can('create', 'certificateAuthority')}
          />
        )}
        {step === 2 && <LimitFields values={values} />}
        {step > 0 && (
          <button type="button" class="link" onClick={() => setStep(step - 1)}>
            {words.back}
          </button>
        )}
      </Form>
    </Dialog>
  );
}

/** The hardware says which proof. */
function Hardware({ proof, onProof }: { proof: Proof; onProof: (proof: Proof) => void }) {
  return (
    <fieldset class="choices">
      <legend>{words.hardware}</legend>
      {Object.entries(words.hardwares).map(([name, { title, says }]) => (
        <label class="choice" key={name}>
          <input
            type="radio"
            name="proof"
            value={name}
            checked={name === proof}
            onChange={() => onProof(name as Proof)}
          />
          <span>
            <b>{title}</b>
            <span class="soft small">{says}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
