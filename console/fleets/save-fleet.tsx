/** Keeps a filter of devices as a new fleet, and goes there. */
import { useLocation } from 'wouter-preact';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { toast } from '../parts/dialogs/toast.tsx';
import { Fields } from '../parts/forms/fields.tsx';
import { Form, type Values } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { makeFleet, newFields } from './verbs.tsx';

export function SaveFleet({ filter, onClose }: { filter: string; onClose: () => void }) {
  const [, go] = useLocation();
  const save = async (values: Values) => {
    const { said, to } = await makeFleet(values);
    toast(said);
    go(to);
  };
  return (
    <Dialog title={texts.fleets.saveAs} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Fields of={newFields} values={{ filter }} />
      </Form>
    </Dialog>
  );
}
