/** Rights as a table of kinds and actions, where only what somebody has can be ticked. */
import { can } from '../app/session.ts';
import { texts } from '../texts.ts';

const words = texts.roles;

export const actions = ['read', 'create', 'update', 'delete', 'publish', 'subscribe'] as const;
export type Rights = Partial<Record<string, readonly string[]>>;

/** Names of the ticks in a form: no field of a form has one with a space. */
const nameOf = (kind: string, action: string) => `right ${kind} ${action}`;

/** The rights that are ticked in a form. */
export function rightsIn(values: object): Record<string, string[]> {
  const rights: Record<string, string[]> = {};
  for (const name of Object.keys(values)) {
    const [mark, kind = '', action = ''] = name.split(' ');
    if (mark === 'right') rights[kind] = [...(rights[kind] ?? []), action];
  }
  return rights;
}

/** `most` is what there can be; of it nothing can be ticked that the person does not have. */
export function RightsTable({
  most,
  value = {},
  fixed,
}: {
  most: Rights;
  value?: Rights | undefined;
  fixed?: boolean;
}) {
  const kinds = Object.keys(most).sort((a, b) => kindOf(a).localeCompare(kindOf(b)));
  return (
    <section
      class="tablewrap rights"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keyboard
      tabIndex={0}
      aria-label={words.rights}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">{texts.kind}</th>
            {actions.map((action) => (
              <th scope="col" key={action}>
                {words.actions[action]}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {kinds.map((kind) => (
            <tr key={kind}>
              <th scope="row">{kindOf(kind)}</th>
              {actions.map((action) => (
                <td key={action} class="tick">
                  {most[kind]?.includes(action) && (
                    <label>
                      <input
                        type="checkbox"
                        name={nameOf(kind, action)}
                        aria-label={words.rightOf(words.actions[action], kindOf(kind))}
                        defaultChecked={value[kind]?.includes(action) ?? false}
                        disabled={fixed || !can(action, kind)}
                      />
                      <span aria-hidden="true">{words.actions[action]}</span>
                    </label>
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function kindOf(kind: string): string {
  return words.kinds[kind] ?? kind;
}
