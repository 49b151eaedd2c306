/** Gives a device away: a code for the new owner, which its present one may withdraw until it is used. */
import { useState } from 'preact/hooks';
import { ApiError, api, unwrap } from '../app/api.ts';
import { Code } from '../parts/codes/code.tsx';
import { QrCode } from '../parts/codes/qr.tsx';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, ErrorNote } from '../parts/forms/form.tsx';
import { Loading, timeText } from '../parts/page/shown.tsx';
import { words } from './words.ts';

/** Until when a code counts that was made before; empty without one. */
async function readOpen(deviceId: string): Promise<string> {
  const params = { path: { deviceId } };
  try {
    return (await unwrap(api.GET('/api/v1/association/give-away/{deviceId}', { params }))).giveAway.expiresAt;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return '';
    throw error;
  }
}

const makeCode = (deviceId: string) => unwrap(api.POST('/api/v1/association/give-away', { body: { deviceId } }));

export function GiveAway({ id, name, close }: { id: string; name: string; close: () => void }) {
  const [made, setMade] = useState<Awaited<ReturnType<typeof makeCode>>>();
  const { data: open, error, reload } = useLoad(() => readOpen(id), [id]);
  const withdraw = async () => {
    await unwrap(api.DELETE('/api/v1/association/give-away/{deviceId}', { params: { path: { deviceId: id } } }));
    setMade(undefined);
    reload();
    toast(words.withdrawn);
  };
  const make = async () => {
    setMade(await makeCode(id));
    reload();
  };
  return (
    <Dialog title={words.giveAwayOf(name)} onClose={close}>
      <p>{words.giveAwaySays}</p>
      {open === undefined && (error ? <ErrorNote error={error} /> : <Loading />)}
      {made ? (
        <>
          <p role="status">{words.codeUntil(timeText(made.expiresAt))}</p>
          <Code label={words.code} text={made.associationCode} />
          <Code label={words.link} text={made.claimUrl} />
          <QrCode text={made.claimUrl} label={words.qr} />
        </>
      ) : (
        open && <p class="note">{words.openUntil(timeText(open))}</p>
      )}
      <div class="row gap">
        {!made && open !== undefined && (
          <ActionButton label={words.makeCode} kind="primary" act={make} onError={failed} />
        )}
        {(made || open) && <ActionButton label={words.withdraw} act={withdraw} onError={failed} />}
      </div>
      <CloseButton onClose={close} />
    </Dialog>
  );
}
