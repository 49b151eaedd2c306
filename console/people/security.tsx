/** The sessions and second factors of a login: one's own, or that of somebody else for an admin. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { can, me } from '../app/session.ts';
import { Confirm } from '../parts/dialog.tsx';
import { ActionButton, ErrorNote } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Loading, Time } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';

const words = texts.security;

/** Nobody takes away the second factor of another admin. */
export function Security({ userId, isEndUser = false }: { userId: string; isEndUser?: boolean }) {
  const [removing, setRemoving] = useState<'totp' | 'sms'>();
  const params = { path: { userId } };
  const { data, error, reload } = useLoad(
    () => unwrap(api.GET('/api/v1/users/{userId}/security', { params })),
    [userId],
  );
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const { mfaMethods, sessions } = data.security;
  const isOwn = me.value?.id === userId;
  const end = async () => {
    const { ended } = await unwrap(api.POST('/api/v1/users/{userId}/end-sessions', { params }));
    toast(words.ended(ended));
    reload();
  };
  const remove = async (method: 'totp' | 'sms') => {
    await unwrap(api.DELETE(`/api/v1/users/{userId}/mfa/${method}`, { params, body: {} }));
    toast(words.removed);
    reload();
  };
  return (
    <>
      <h3>{words.factors}</h3>
      {mfaMethods.length === 0 && <p class="soft">{words.noFactor}</p>}
      <ul class="plainlist">
        {mfaMethods.map((method) => (
          <li key={method}>
            {texts.signIn.methods[method]}
            {!isOwn && isEndUser && can('delete', 'mfaMethod') && (
              <button
                type="button"
                class="plain"
                aria-label={texts.verbOf(words.remove, texts.signIn.methods[method] ?? method)}
                onClick={() => setRemoving(method)}
              >
                {words.remove}
              </button>
            )}
          </li>
        ))}
      </ul>
      <h3>{words.sessions}</h3>
      {sessions.length === 0 && <p class="soft">{words.noSession}</p>}
      <ul class="plainlist">
        {sessions.map(({ id, created, network, current }) => (
          <li key={id}>
            <span>
              {words.since} <Time iso={created} /> {network && <span class="soft small">{words.from(network)}</span>}
            </span>
            {current && <Badge kind="good" text={words.current} />}
          </li>
        ))}
      </ul>
      {(isOwn || can('delete', 'session')) && sessions.some(({ current }) => !current) && (
        <ActionButton label={isOwn ? words.endOthers : words.endAll} act={end} onError={failed} kind="danger" />
      )}
      {removing && (
        <Confirm
          title={words.removeOf(texts.signIn.methods[removing] ?? removing)}
          says={words.removeSays}
          verb={words.remove}
          run={() => remove(removing)}
          onClose={() => setRemoving(undefined)}
        />
      )}
    </>
  );
}
