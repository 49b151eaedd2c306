/** From the code on a label to the first value of the device: find it, sign up or in, confirm, and see it. */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, api, unwrap } from '../app/api.ts';
import { begin, can, me, signOut, state } from '../app/session.ts';
import { canScan, Scan } from '../parts/codes/scan.tsx';
import { useLoad } from '../parts/data/load.ts';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, Button, ErrorNote, Field, Form, type Values } from '../parts/forms/form.tsx';
import { NewPassword } from '../parts/forms/new-password.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { Loading } from '../parts/page/shown.tsx';
import { federatedError, federatedSecondStep, keepClaim } from '../sign-in/federated.ts';
import { Password, Providers, SecondFactor } from '../sign-in/sign-in.tsx';
import { texts } from '../words.ts';
import { FirstValue } from './first-value.tsx';
import { type Label, readLabel } from './label.ts';

const words = texts.claim;

interface Found {
  code: string;
  serialNumber: string;
  productName: string;
  signUp: boolean;
  /** It belongs to somebody, and the code is not theirs to give it away. */
  taken: boolean;
}

interface Props {
  account: string;
  /** Of the label; empty where a person types it. */
  code: string;
  /** A label of another account was scanned. */
  onAccount?: (account: string) => void;
}

export function Claim({ account, code, onAccount }: Props) {
  const [found, setFound] = useState<Found>();
  const [claimed, setClaimed] = useState<string>();
  const [given, setGiven] = useState(code);
  const find = async (label: Label) => {
    if (label.account !== undefined && label.account !== account) onAccount?.(label.account);
    const body = { accountId: label.account ?? account, associationCode: label.code };
    const answer = await unwrap(api.POST('/api/v1/association/look-up-code', { body })).catch((error) => {
      throw isMistyped(error) ? new Error(words.mistyped) : error;
    });
    setFound({ code: label.code, ...answer });
  };
  const again = () => {
    setGiven('');
    setFound(undefined);
    setClaimed(undefined);
  };
  if (!found) return <TypeCode code={given} find={find} />;
  return (
    <>
      <div class={claimed ? 'thing good' : 'thing'}>
        <p class="figure">{found.productName}</p>
        <p>
          {words.serialNumber} <b class="mono">{found.serialNumber}</b>
        </p>
        {claimed && <p role="status">{words.yours}</p>}
        {!claimed && found.taken && <p class="note warn gap">{words.taken}</p>}
      </div>
      {claimed ? (
        <FirstValue deviceId={claimed} again={again} />
      ) : state.value === 'in' ? (
        <Confirm account={account} found={found} onClaimed={setClaimed} />
      ) : (
        <Enter account={account} found={found} onClaimed={setClaimed} />
      )}
      {!claimed && (
        <p class="gap">
          <Button label={words.otherCode} class="link" onClick={again} />
        </p>
      )}
    </>
  );
}

/** A code of a link is looked up at once; what is wrong with it is said next to the field. */
function TypeCode({ code, find }: { code: string; find: (label: Label) => Promise<void> }) {
  const [scanning, setScanning] = useState(false);
  const [busy, setBusy] = useState(code !== '');
  const [error, setError] = useState<unknown>();
  const look = (label: Label) => {
    setBusy(true);
    setScanning(false);
    setError(undefined);
    find(label)
      .catch(setError)
      .finally(() => setBusy(false));
  };
  useEffect(() => {
    if (code !== '') look({ code });
  }, []);
  if (busy) return <Loading />;
  if (scanning) return <Scan onText={(text) => look(readLabel(text))} onClose={() => setScanning(false)} />;
  return (
    <>
      {error !== undefined && <ErrorNote error={error} />}
      {canScan() && <Button label={words.scan} class="wide" onClick={() => setScanning(true)} />}
      <Form light save={async ({ code = '' }) => find(readLabel(code))} verb={words.next}>
        <Field
          label={words.code}
          name="code"
          required
          defaultValue={code}
          placeholder="XXXX-XXXX-XXXX"
          autoComplete="off"
          autoCapitalize="characters"
          spellcheck={false}
          hint={words.codeHint}
          class="mono"
        />
      </Form>
    </>
  );
}

/** For who is not signed in: a login is made with the claim, or one that exists is used. */
function Enter({ account, found, onClaimed }: { account: string; found: Found; onClaimed: (id: string) => void }) {
  const [isOwner, setOwner] = useState(false);
  const [known, setKnown] = useState(!found.signUp);
  const [second, setSecond] = useState(federatedSecondStep.value);
  if (second) return <SecondFactor {...second} />;
  if (found.taken && !isOwner) return <Switch label={words.isMine} to={() => setOwner(true)} />;
  const others = (
    <>
      {federatedError.value && <p class="note bad">{federatedError.value}</p>}
      <Providers account={account} onLeave={() => keepClaim(account, found.code)} />
    </>
  );
  if (known)
    return (
      <>
        <h2>{words.signIn}</h2>
        {!found.signUp && !found.taken && <p class="soft">{words.noSignUp}</p>}
        <Password account={account} onSecond={setSecond} />
        {found.signUp && <Switch label={words.newHere} to={() => setKnown(false)} />}
        {others}
      </>
    );
  const signUp = async ({ emailAddress = '', password = '' }: Values) => {
    const body = { accountId: account, associationCode: found.code, emailAddress, password };
    const answer = await unwrap(api.POST('/api/v1/association/sign-up-with-code', { body }));
    if ('mfaRequired' in answer) return setSecond(answer);
    toast(words.mailed(emailAddress));
    onClaimed(answer.deviceId);
    await begin(answer.csrfToken);
  };
  return (
    <>
      <h2>{words.signUp}</h2>
      <Form light save={signUp} verb={words.signUpVerb}>
        <Field label={texts.signIn.email} name="emailAddress" type="email" autoComplete="username" required />
        <NewPassword
          of={undefined}
          label={texts.signIn.password}
          name="password"
          minLength={8}
          required
          hint={words.passwordHint}
        />
      </Form>
      <Switch label={words.haveLogin} to={() => setKnown(true)} />
      {others}
    </>
  );
}

function Switch({ label, to }: { label: string; to: () => void }) {
  return (
    <p>
      <Button label={label} class="link" onClick={to} />
    </p>
  );
}

/** For who is signed in: where the device is to be, and the claim. */
function Confirm({ account, found, onClaimed }: { account: string; found: Found; onClaimed: (id: string) => void }) {
  const [isRefused, setRefused] = useState(false);
  const { data } = useLoad(async () => {
    const query = { accountId: account, pageSize: 2, fields: 'name' };
    return can('read', 'organization')
      ? (await unwrap(api.GET('/api/v1/organizations', { params: { query } }))).organizations.results
      : [];
  }, [me.value?.id]);
  if (me.value?.accountId !== account) return <OtherLogin says={words.otherAccount} />;
  if (!data) return <Loading />;
  const [only, second] = data;
  if (!only) return <OtherLogin says={words.noOrganization} />;
  const claim = async ({ organizationId = only.id }: Values) => {
    setRefused(false);
    const body = { associationCode: found.code, organizationId };
    try {
      const { deviceId } = await unwrap(api.POST('/api/v1/association/start-association-with-code', { body }));
      onClaimed(deviceId);
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 422) throw new Error(words.taken);
      if (!isUnconfirmed(failure)) throw failure;
      setRefused(true);
    }
  };
  return (
    <>
      {isRefused && (
        <>
          <p class="note warn" role="alert">
            {words.unconfirmed}
          </p>
          <p>
            <ActionButton label={words.mailAgain} act={mailAgain} onError={failed} />
          </p>
        </>
      )}
      <Form light save={claim} verb={words.claimVerb(found.productName)}>
        {second && <Picker kind="organization" label={words.organization} name="organizationId" />}
      </Form>
      <p class="small soft">
        {words.signedInAs(me.value?.emailAddress ?? '')}{' '}
        <Button label={words.notYou} class="link" onClick={() => signOut()} />
      </p>
    </>
  );
}

const isMistyped = (error: unknown) =>
  error instanceof ApiError && error.details.some(({ path }) => path === 'associationCode');
const isUnconfirmed = (error: unknown) =>
  error instanceof ApiError && error.details.some(({ path }) => path === 'emailAddress');

async function mailAgain(): Promise<void> {
  const { id = '', emailAddress } = me.value ?? {};
  const body = { userId: id, newEmailAddress: emailAddress ?? '' };
  await unwrap(api.POST('/api/v1/profile/update-email-address', { body }));
  toast(words.mailed(emailAddress ?? ''));
}

function OtherLogin({ says }: { says: string }) {
  return (
    <>
      <p class="note warn">{says}</p>
      <Button label={texts.signOut} onClick={() => signOut()} />
    </>
  );
}
