/** CAs: those of the account whose certificates let devices in, and those with which the service issues certificates. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { Confirm } from '../parts/dialog.tsx';
import { download } from '../parts/download.ts';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Edit, Proof, Upload, UploadList } from './authority-dialogs.tsx';
import { Ends } from './certificates.tsx';
import { type Authority, readAuthorities } from './read.ts';

const words = texts.enrollment.authorities;
type Open = { kind: 'proof' | 'certificate' | 'edit' | 'list' | 'delete'; of: Authority };

/** A name as the beginning of a file's. */
const fileName = (name: string) => name.replace(/[^\w.-]+/g, '-').toLowerCase() || 'ca';

function saveCertificate({ name, certificate }: Authority): void {
  download(`${fileName(name)}.crt`, new Blob([certificate], { type: 'application/x-pem-file' }));
}

async function saveList({ id, name }: Authority): Promise<void> {
  const params = { path: { authorityId: id } };
  const list = await unwrap(api.GET('/api/v1/crl/{authorityId}', { params, parseAs: 'blob' }));
  download(`${fileName(name)}.crl`, list as unknown as Blob);
}

export function Authorities({ round }: { round: number }) {
  const [open, setOpen] = useState<Open>();
  const [own, setOwn] = useState(0);
  const mayChange = can('update', 'certificateAuthority');
  const again = () => {
    setOpen(undefined);
    setOwn(own + 1);
    toast(texts.saved);
  };
  const remove = async ({ id, version }: Authority) => {
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.DELETE('/api/v1/access/certificate-authorities/{id}', { params }));
    setOwn(own + 1);
  };
  const itemsOf = (of: Authority) => {
    const isActive = of.state === 'active';
    return [
      mayChange && !isActive && !of.issuing && { text: words.prove, run: () => setOpen({ kind: 'proof', of }) },
      mayChange && !of.issuing && { text: texts.edit, run: () => setOpen({ kind: 'edit', of }) },
      mayChange && !of.issuing && isActive && { text: words.uploadList, run: () => setOpen({ kind: 'list', of }) },
      mayChange && of.issuing && { text: words.upload, run: () => setOpen({ kind: 'certificate', of }) },
      isActive && { text: words.saveCertificate, run: () => saveCertificate(of) },
      isActive && of.issuing && { text: words.saveList, run: () => void saveList(of).catch(failed) },
      can('delete', 'certificateAuthority') && {
        text: texts.delete,
        run: () => setOpen({ kind: 'delete', of }),
        danger: true,
      },
    ];
  };
  return (
    <>
      <Listing
        label={texts.enrollment.tabs.authorities}
        on={[round, own]}
        load={(page) => readAuthorities(page, pageSize)}
        nameOf={({ name }) => name}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          {
            name: 'kind',
            label: texts.programs.kind,
            show: ({ issuing }) => (issuing ? words.issues : words.kinds.registered),
          },
          {
            name: 'state',
            label: texts.enrollment.state,
            show: ({ state }) => <Badge kind={state === 'active' ? 'good' : 'warn'} text={words.states[state]} />,
          },
          {
            name: 'ends',
            label: texts.enrollment.ends,
            show: ({ validTo, state, issuing }) =>
              state === 'active' || !issuing ? <Ends validTo={validTo} /> : <span class="soft">–</span>,
          },
          { name: 'list', label: words.list, wrap: true, show: (one) => <ListState of={one} /> },
        ]}
        actions={itemsOf}
        empty={<p>{words.none}</p>}
      />
      {open?.kind === 'proof' && <Proof of={open.of} onDone={again} onClose={() => setOpen(undefined)} />}
      {open?.kind === 'certificate' && <Upload of={open.of} onDone={again} onClose={() => setOpen(undefined)} />}
      {open?.kind === 'edit' && <Edit of={open.of} onDone={again} onClose={() => setOpen(undefined)} />}
      {open?.kind === 'list' && <UploadList of={open.of} onDone={again} onClose={() => setOpen(undefined)} />}
      {open?.kind === 'delete' && (
        <Confirm
          title={texts.programs.deleteOf(open.of.name)}
          says={texts.programs.deleteSays}
          typed={open.of.name}
          verb={texts.delete}
          run={() => remove(open.of)}
          onClose={() => setOpen(undefined)}
        />
      )}
    </>
  );
}

/** The revocation list of a registered CA; those of others are made here. */
function ListState({ of: { issuing, state, crlTaken, crlCount, crlNextUpdate, crlError } }: { of: Authority }) {
  if (issuing) return state === 'active' ? words.ownList : <span class="soft">–</span>;
  if (crlTaken === null && crlError === null) return <span class="soft">–</span>;
  const isOver = crlNextUpdate !== null && Date.parse(crlNextUpdate) <= Date.now();
  return (
    <span class="row">
      {crlTaken !== null && (
        <span>
          {words.entries(crlCount ?? 0)} <Time iso={crlNextUpdate} />
        </span>
      )}
      {isOver && <Badge kind="bad" text={texts.enrollment.hasEnded} />}
      {crlError !== null && (
        <span>
          <Badge kind="warn" text={words.notFetched} /> {crlError}
        </span>
      )}
    </span>
  );
}
