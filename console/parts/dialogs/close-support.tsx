/** The button that closes a request for support. */
import { api, unwrap } from '../../app/api.ts';
import { can } from '../../app/session.ts';
import { texts } from '../../texts.ts';
import { ActionButton } from '../forms/form.tsx';
import { failed, toast } from './toast.tsx';

const words = texts.support;

/** For who may close requests. */
export function CloseSupport({
  deviceId,
  id,
  of: [what, message = ''],
  onClosed,
}: {
  deviceId: string;
  id: string;
  /** What tells it from others. */
  of: readonly [string, string?];
  onClosed: () => void;
}) {
  if (!can('delete', 'supportRequest')) return null;
  const close = async () => {
    const params = { path: { id: deviceId, supportId: id } };
    await unwrap(api.DELETE('/api/v1/devices/{id}/support/{supportId}', { params }));
    toast(words.closed);
    onClosed();
  };
  return <ActionButton label={words.close} of={words.request(what, message)} act={close} onError={failed} />;
}
