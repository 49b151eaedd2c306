/** A list of people, and what can be done for each: see the login, move, delete. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Ago } from '../parts/ago.tsx';
import { CloseButton, Confirm, Dialog } from '../parts/dialog.tsx';
import { ActionButton, Form, type Values } from '../parts/form.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { Picker } from '../parts/picker.tsx';
import { failed, giveBack, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { RoleName, RolePicker, type Scope } from './role-picker.tsx';
import { Security } from './security.tsx';

const words = texts.people;

interface Person {
  id: string;
  userId: string | null;
  email: string;
  created: string;
  organizationId?: string;
  roleId: string;
}

interface PeopleProps<P extends Person> {
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
  /** Left out where roles may not be changed. */
  give?: ((one: P, roleId: string) => Promise<unknown>) | undefined;
  scope: Scope;
  /** @returns what undoes it. */
  remove: (one: P) => Promise<() => Promise<unknown>>;
  mayRemove: (one: P) => boolean;
}

/** Milliseconds. */
const liveEvery = 10_000;

type Kind = 'security' | 'move' | 'give' | 'delete';

export function PeopleTable<P extends Person>({
  label,
  load,
  on,
  says,
  columns,
  badge,
  maySecure,
  move,
  give,
  scope,
  remove,
  mayRemove,
}: PeopleProps<P>) {
  const [open, setOpen] = useState<{ kind: Kind; of: P }>();
  const [round, setRound] = useState(0);
  /** Those deleted here: not every kind of people has a trash. */
  const [removed, setRemoved] = useState<readonly { id: string; email: string; undo: () => Promise<void> }[]>([]);
  const close = () => setOpen(undefined);
  const again = () => setRound((before) => before + 1);
  const done = () => {
    again();
    close();
  };
  const action = (kind: Kind, of: P, text: string) => ({
    text,
    run: () => setOpen({ kind, of }),
    danger: kind === 'delete',
  });
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
          { name: 'role', label: texts.roles.one, show: ({ roleId }) => <RoleName id={roleId} /> },
          { name: 'created', label: texts.created, show: ({ created }) => <Ago iso={created} /> },
        ]}
        nameOf={({ email }) => email}
        actions={(of) => [
          of.userId !== null && maySecure && action('security', of, words.security),
          move && action('move', of, texts.move),
          give && action('give', of, texts.roles.give),
          mayRemove(of) && action('delete', of, texts.delete),
        ]}
        every={liveEvery}
        empty={<p>{words.none}</p>}
      />
      {removed.map(({ id, email, undo }) => (
        <p class="note row" key={id}>
          {words.deleted(email)}{' '}
          <ActionButton label={texts.undo} of={email} act={() => giveBack(undo)} onError={failed} />
        </p>
      ))}
      {open?.kind === 'security' && open.of.userId && (
        <SecurityOf
          email={open.of.email}
          userId={open.of.userId}
          isEndUser={scope === 'organization'}
          onClose={close}
        />
      )}
      {open?.kind === 'move' && move && (
        <Move of={open.of} move={(organizationId) => move(open.of, organizationId)} onDone={done} onClose={close} />
      )}
      {open?.kind === 'give' && give && (
        <Give of={open.of} scope={scope} give={(roleId) => give(open.of, roleId)} onDone={done} onClose={close} />
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(open.of.email)}
          says={says}
          verb={texts.delete}
          run={async () => {
            const { id, email } = open.of;
            const recover = await remove(open.of);
            const undo = async () => {
              setRemoved((before) => before.filter((one) => one.id !== id));
              await recover();
            };
            setRemoved((before) => [...before, { id, email, undo }]);
            again();
            toast(words.deleted(email), undo);
          }}
          onClose={close}
        />
      )}
    </>
  );
}

function SecurityOf({
  email,
  userId,
  isEndUser,
  onClose,
}: {
  email: string;
  userId: string;
  isEndUser: boolean;
  onClose: () => void;
}) {
  return (
    <Dialog title={words.securityOf(email)} onClose={onClose}>
      <Security userId={userId} isEndUser={isEndUser} />
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}

function Give({
  of,
  scope,
  give,
  onDone,
  onClose,
}: {
  of: Person;
  scope: Scope;
  give: (roleId: string) => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={texts.roles.giveOf(of.email)} onClose={onClose}>
      <Form
        save={async ({ roleId = '' }: Values) => {
          await give(roleId);
          toast(texts.saved);
          onDone();
        }}
        verb={texts.save}
        onCancel={onClose}
      >
        <p>{texts.roles.giveSays}</p>
        <RolePicker scope={scope} value={of.roleId} />
      </Form>
    </Dialog>
  );
}

function Move({
  of,
  move,
  onDone,
  onClose,
}: {
  of: Person;
  move: (organizationId: string) => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={words.moveOf(of.email)} onClose={onClose}>
      <Form
        save={async ({ organizationId = '' }: Values) => {
          await move(organizationId);
          toast(texts.saved);
          onDone();
        }}
        verb={texts.move}
        onCancel={onClose}
      >
        <p>{words.moveSays}</p>
        <Picker
          kind="organization"
          label={texts.devices.organization}
          name="organizationId"
          value={of.organizationId}
        />
      </Form>
    </Dialog>
  );
}
