/** The form of one new device. */
import { make } from '../app/entities.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { toast } from '../parts/dialogs/toast.tsx';
import { Field, Form, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { texts } from '../texts.ts';
import { SameSerial, useSameSerial } from './same-serial.tsx';

const words = texts.devices;

export function NewDevice({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const { same, mayMake } = useSameSerial();
  const save = async ({ serialNumber = '', deviceTemplateId, organizationId }: Values) => {
    if (!(await mayMake(serialNumber))) return;
    await make('device', { serialNumber, deviceTemplateId, organizationId });
    toast(words.made(serialNumber));
    onMade();
    onClose();
  };
  return (
    <Dialog title={words.new} onClose={onClose}>
      <Form save={save} verb={same ? words.makeAnother : texts.create} onCancel={onClose}>
        <Field label={texts.serialNumber} name="serialNumber" required />
        <SameSerial same={same} />
        <Picker kind="product" label={texts.product} name="deviceTemplateId" none={words.defaultProduct} />
        <Picker kind="organization" label={texts.organization} name="organizationId" none={texts.none} />
      </Form>
    </Dialog>
  );
}
