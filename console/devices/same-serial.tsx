/** A serial number that a device has already is said before a second device is made with it. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { readList } from '../app/entities.ts';
import { texts } from '../texts.ts';

/** Devices whose serial numbers contain this one: it is looked for among so many. */
const maxLooked = 100;

interface Same {
  id: string;
  serialNumber: string;
}

async function findSame(serialNumber: string): Promise<Same | undefined> {
  const { results } = await readList('device', 1, { serialNumber, pageSize: maxLooked, fields: 'serialNumber' });
  return results?.find((one) => one.serialNumber === serialNumber);
}

/** `mayMake` answers false the first time for a serial number that exists; `same` is that device. */
export function useSameSerial() {
  const [same, setSame] = useState<Same>();
  const mayMake = async (serialNumber: string): Promise<boolean> => {
    if (same?.serialNumber === serialNumber) return true;
    const found = await findSame(serialNumber);
    setSame(found);
    return found === undefined;
  };
  return { same, mayMake };
}

export function SameSerial({ same }: { same: Same | undefined }) {
  if (!same) return null;
  return (
    <div class="note warn" role="alert">
      <p>
        {texts.devices.sameSerial(same.serialNumber)} <Link href={`/devices/${same.id}`}>{texts.devices.openSame}</Link>
      </p>
    </div>
  );
}
