/** A new group, step by step: what its devices have, where they belong and what they get, and what bounds it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { make } from '../app/entities.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { type Chosen, Fields } from '../parts/forms/fields.tsx';
import { Button, Form, type Values } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { changesOf, limitFields, type Proof, placeFields, usual, withIssuer } from './group-fields.tsx';
import { SecretsDialog } from './secrets.tsx';

const words = texts.enrollment;
const steps = words.steps.length;

export function NewGroup({ onDone, onClose }: { onDone: (id: string) => void; onClose: () => void }) {
  const [step, setStep] = useState(0);
  const [values, setValues] = useState<Values>(usual);
  const [made, setMade] = useState<Awaited<ReturnType<typeof makeGroup>>>();
  const list = useRef<HTMLOListElement>(null);
  const before = useRef(step);
  // The button has gone with the step before; the next thing to do is the first field.
  useLayoutEffect(() => {
    if (before.current === step) return;
    before.current = step;
    list.current?.parentElement?.querySelector<HTMLElement>('form input, form select')?.focus();
  }, [step]);
  if (made) return <SecretsDialog group={made} onClose={() => onDone(made.id)} />;
  const fields = [() => [hardware], placeFields(values.proof), limitFields][step] ?? limitFields;
  const save = async (given: Values, form: HTMLFormElement) => {
    const own = new Set(new FormData(form).keys());
    const others = Object.entries(values).filter(([name]) => !own.has(name));
    const all = { ...Object.fromEntries(others), ...given };
    if (step < steps - 1) {
      setValues(all);
      setStep(step + 1);
      return;
    }
    // Asked once more after a refusal, it has its CA.
    const chosen = await withIssuer(all);
    setValues(chosen);
    setMade(await makeGroup(chosen));
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
        begun={step > 0}
        onCancel={onClose}
      >
        <Fields of={fields} values={values} />
        {step > 0 && <Button label={words.back} class="link" onClick={() => setStep(step - 1)} />}
      </Form>
    </Dialog>
  );
}

const makeGroup = (values: Values) => make('enrollmentGroup', { proof: values.proof as Proof, ...changesOf(values) });

/** The hardware says which proof. */
function Hardware({ name, value, onText }: Chosen) {
  return (
    <fieldset class="choices">
      <legend>{words.hardware}</legend>
      {Object.entries(words.hardwares).map(([proof, { title, says }]) => (
        <label class="choice" key={proof}>
          <input type="radio" name={name} value={proof} checked={proof === value} onChange={() => onText(proof)} />
          <span>
            <b>{title}</b>
            <span class="soft small">{says}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
const hardware = { name: 'proof', choice: (chosen: Chosen) => <Hardware {...chosen} /> };
