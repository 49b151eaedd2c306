/** A list of people, and what can be done for each: see the login, move, delete. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Form, type Values } from '../parts/form.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { Time } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Security } from './security.tsx';

const words = texts.people;

interface Person {
  id: string;
  userId: string | null;
  email: string;
  created: string;
  organizationId?: string;
}

export function PeopleTable<P extends Person>({
  label,
  load,
  on,
  says,
  columns,
  badge,
  maySecure,
  move,
  remove,
  mayRemove,
}: {
  label: string;
  load: (page: number) => Promise<{ results: P[]; meta?: { count: number } }>;
  on: readonly unknown[];
  /** What a deletion ends. */
  says: string;
  /** Columns besides the email address and the time. */
  columns: readonly Column<P>[];
  badge?: (one: P) => ComponentChildren;
  maySecure: boolean;
  /** Left out where people are in no organization, or may not be moved. */
  move?: ((one: P, organizationId: string) => Promise<unknown>) | undefined;
  /** @returns what undoes it. */
  remove: (one: P) => Promise<() => Promise<unknown>>;
  mayRemove: (one: P) => boolean;
}) {
  const [open, setOpen] = useState<{ kind: 'security' | 'move' | 'delete'; of: P }>();
  const [round, setRound] = useState(0);
  const close = () => setOpen(undefined);
  const again = () => setRound((before) => before + 1);
  const action = (kind: 'security' | 'move' | 'delete', of: P, text: string) => (
    <button type="button" class="plain" onClick={() => setOpen({ kind, of })}>
      {text}
    </button>
  );
  return (
    <>
      <Listing
        label={label}
        on={[round, ...on]}
        load={load}
        columns={[
          {
            name: 'email',
            label: words.email,
            show: (of) => (
              <>
                {of.email} {badge?.(of)}
              </>
            ),
          },
          ...columns,
          { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
          {
            name: 'do',
            label: texts.actions,
            show: (of) => (
              <span class="row">
                {of.userId && maySecure && action('security', of, words.security)}
                {move && action('move', of, texts.move)}
                {mayRemove(of) && action('delete', of, texts.delete)}
              </span>
            ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
      {open?.kind === 'security' && open.of.userId && (
        <Dialog title={words.securityOf(open.of.email)} onClose={close}>
          <Security userId={open.of.userId} />
          <div class="row end">
            <button type="button" onClick={close}>
              {texts.close}
            </button>
          </div>
        </Dialog>
      )}
      {open?.kind === 'move' && move && (
        <Dialog title={words.moveOf(open.of.email)} onClose={close}>
          <Form
            save={async ({ organizationId = '' }: Values) => {
              await move(open.of, organizationId);
              toast(texts.saved);
              again();
              close();
            }}
            verb={texts.move}
            onCancel={close}
          >
            <p>{words.moveSays}</p>
            <Picker
              kind="organization"
              label={texts.devices.organization}
              name="organizationId"
              value={open.of.organizationId}
            />
          </Form>
        </Dialog>
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(open.of.email)}
          says={says}
          verb={texts.delete}
          run={async () => {
            const undo = await remove(open.of);
            again();
            toast(words.deleted(open.of.email), () => undo().then(again));
          }}
          onClose={close}
        />
      )}
    </>
  );
}
