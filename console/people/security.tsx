/** The sessions and second factors of a login: one's own, or that of somebody else for an admin. */
import { api, unwrap } from '../app/api.ts';
import { can, me } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, Button, ErrorNote } from '../parts/forms/form.tsx';
import { useVerbs, type Verb } from '../parts/lists/verbs.tsx';
import { Badge, Loading, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.security;

/** Nobody takes away the second factor of another admin. */
export function Security({ userId, isEndUser = false }: { userId: string; isEndUser?: boolean }) {
  const params = { path: { userId } };
  const { data, error, reload } = useLoad(
    () => unwrap(api.GET('/api/v1/users/{userId}/security', { params })),
    [userId],
  );
  const { start, dialog } = useVerbs(reload);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const { mfaMethods, sessions } = data.security;
  const isOwn = me.value?.id === userId;
  const end = async () => {
    const { ended } = await unwrap(api.POST('/api/v1/users/{userId}/end-sessions', { params }));
    toast(words.ended(ended));
    reload();
  };
  const removing = (method: 'totp' | 'sms'): Verb => ({
    text: texts.remove,
    ask: { title: words.removeOf(texts.signIn.methods[method] ?? method), says: words.removeSays },
    run: async () => {
      await unwrap(api.DELETE(`/api/v1/users/{userId}/mfa/${method}`, { params, body: {} }));
      return { said: words.removed };
    },
  });
  return (
    <>
      <h3>{words.factors}</h3>
      {mfaMethods.length === 0 && <p class="soft">{words.noFactor}</p>}
      <ul class="plainlist">
        {mfaMethods.map((method) => (
          <li key={method}>
            {texts.signIn.methods[method]}
            {!isOwn && isEndUser && can('delete', 'mfaMethod') && (
              <Button
                label={texts.remove}
                class="plain"
                aria-label={texts.verbOf(texts.remove, texts.signIn.methods[method] ?? method)}
                onClick={() => start(removing(method))}
              />
            )}
          </li>
        ))}
      </ul>
      <h3>{words.sessions}</h3>
      {sessions.length === 0 && <p class="soft">{words.noSession}</p>}
      <ul class="plainlist">
        {sessions.map(({ id, created, network, browser, current }) => (
          <li key={id}>
            <span>
              {browser && `${browser} · `}
              {texts.since} <Time iso={created} /> {network && <span class="soft small">{words.from(network)}</span>}
            </span>
            {current && <Badge kind="good" text={words.current} />}
          </li>
        ))}
      </ul>
      {(isOwn || can('delete', 'session')) && sessions.some(({ current }) => !current) && (
        <ActionButton label={isOwn ? words.endOthers : words.endAll} act={end} onError={failed} kind="danger" />
      )}
      {dialog}
    </>
  );
}
