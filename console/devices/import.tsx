/** Devices from a spreadsheet or CSV: its columns are mapped, every row is tried, and then a job makes them. */
import { useRef, useState } from 'preact/hooks';
import { csvCell } from '../../src/core/formats/spreadsheets.ts';
import { api, rawBody, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { browserStore } from '../app/stores.ts';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { toast } from '../parts/dialogs/toast.tsx';
import { demandUnchanged, forgetFile } from '../parts/forms/files.ts';
import { Button, Check, Form, TextArea, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { type Column, Pager, Table } from '../parts/lists/table.tsx';
import { texts } from '../texts.ts';
import { readCustomFields } from './query.ts';
import { finishJob, type Job, Progress } from './run.tsx';
import type { Sheet as Read, SheetRow } from './sheet.ts';

const words = texts.imports;
type Sheet = Extract<Read, { header: unknown }>;
/** Where devices stand whose rows do not say it. */
type ImportPlace = { template?: string; organization?: string };

/** What a job takes. */
const maxJobRows = 50_000;
const maxJobLength = 16 * 1024 * 1024;
/** Rows that are shown of a file, and of what was tried. */
const shownRows = 10;
const pageSize = 25;
const mapKey = 'slipway-import-columns';

export function Import({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [sheet, setSheet] = useState<Sheet>();
  const [tried, setTried] = useState<Tried>();
  return (
    <Dialog title={words.title} onClose={onClose} wide={sheet !== undefined}>
      {!sheet ? (
        <Choose onSheet={setSheet} onClose={onClose} />
      ) : (
        <>
          <div hidden={tried !== undefined}>
            <Columns sheet={sheet} onTried={setTried} onClose={onClose} />
          </div>
          {tried && (
            <Make
              tried={tried}
              onBack={() => setTried(undefined)}
              onClose={onClose}
              onMade={() => {
                onDone();
                onClose();
              }}
            />
          )}
        </>
      )}
    </Dialog>
  );
}

/** Takes a file, which may be dropped anywhere in the dialog, or pasted cells. */
function Choose({ onSheet, onClose }: { onSheet: (sheet: Sheet) => void; onClose: () => void }) {
  const [foreign, setForeign] = useState<string>();
  const input = useRef<HTMLInputElement>(null);
  const read = async ({ rows = '', foreignText }: Values) => {
    const file = input.current?.files?.[0];
    if (file) await demandUnchanged(file);
    const { readApart } = await import('./sheet-worker.ts');
    const sheet = await readApart(file ?? rows, foreignText !== undefined);
    if (!('fault' in sheet)) return onSheet(sheet);
    setForeign(sheet.foreign);
    throw new Error(words.faults[sheet.fault](sheet.line));
  };
  const choose = () => {
    setForeign(undefined);
    input.current?.form?.requestSubmit();
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    if (!input.current || !event.dataTransfer?.files.length) return;
    input.current.files = event.dataTransfer.files;
    choose();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: files are dropped on it; the field in it takes them as well
    <div onDragOver={(event) => event.preventDefault()} onDrop={drop}>
      <Form save={read} verb={words.next} onCancel={onClose} light>
        <p class="soft">{words.hint}</p>
        <label class="field drop">
          {words.file}
          <input
            ref={input}
            type="file"
            accept=".xlsx,.csv,.tsv,.txt,text/csv"
            onClick={forgetFile}
            onChange={choose}
          />
          <span class="hint">{words.fileHint}</span>
        </label>
        {foreign !== undefined && <Check label={words.readForeign(foreign)} name="foreignText" value="true" />}
        <TextArea label={words.rows} name="rows" hint={words.rowsHint} />
      </Form>
    </div>
  );
}

/** Fields of a device by their names in the API. Those of products are added. */
const fields = ['serialNumber', 'name', 'template', 'organization', 'latitude', 'longitude', 'firmwareVersion'];
const labelOf = (field: string) => words.fields[field] ?? field;
const plain = (text: string) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');

/** The field that each column was last, or is by its name; none twice. */
function guess(header: readonly string[], known: readonly string[]): string[] {
  const last: Record<string, string> = JSON.parse(browserStore.get(mapKey) ?? '{}');
  const taken = new Set<string>();
  return header.map((name) => {
    const remembered = last[plain(name)];
    const named = known.find((field) => [field, labelOf(field)].some((one) => plain(one) === plain(name)));
    const field = remembered ?? named ?? (words.serialNames.test(name) ? 'serialNumber' : '');
    if (field === '' || taken.has(field) || !known.includes(field)) return '';
    taken.add(field);
    return field;
  });
}

/** A part of the rows, as the job that was tried with it. */
interface Part {
  rows: SheetRow[];
  csv: string;
  job: Job;
}
interface Tried {
  parts: Part[];
  place: ImportPlace;
  columns: string[];
}

function Columns({ sheet, onTried, onClose }: { sheet: Sheet; onTried: (tried: Tried) => void; onClose: () => void }) {
  const { header, rows } = sheet;
  const { data: custom } = useLoad(async () => (can('read', 'customField') ? readCustomFields(undefined) : []), []);
  const [chosen, setChosen] = useState<string[]>();
  const [job, setJob] = useState<Job>();
  const known = [...new Set([...fields, ...(custom ?? []).map(({ label }) => label)])];
  const columns = chosen ?? guess(header, known);
  const choose = (at: number, field: string) =>
    setChosen(columns.map((one, place) => (place === at ? field : one === field ? '' : one)));
  const tryOut = async (place: ImportPlace) => {
    if (!columns.includes('serialNumber')) throw new Error(words.needsSerial);
    const last = JSON.parse(browserStore.get(mapKey) ?? '{}');
    const now = Object.fromEntries(header.map((name, at) => [plain(name), columns[at]]));
    browserStore.set(mapKey, JSON.stringify({ ...last, ...now }));
    const parts: Part[] = [];
    for (const { rows: some, csv } of partsOf(rows, columns))
      parts.push({ rows: some, csv, job: await runJob(csv, place, true, setJob) });
    onTried({ parts, place, columns });
  };
  return (
    <Form save={tryOut} verb={words.check} onCancel={onClose} light>
      <p class="soft">{words.map(Math.min(rows.length, shownRows), rows.length)}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways, and has to by keyboard */}
      <section class="tablewrap" tabIndex={0} aria-label={words.preview}>
        <table class="sheet">
          <thead>
            <tr>
              <th>{words.line}</th>
              {header.map((name, at) => (
                <th key={`${at} ${name}`}>
                  <bdi>{name || words.unnamed(at + 1)}</bdi>
                  <select
                    aria-label={words.becomes(name || words.unnamed(at + 1))}
                    value={columns[at]}
                    onChange={({ currentTarget }) => choose(at, currentTarget.value)}
                  >
                    <option value="">{words.leftOut}</option>
                    {known.map((field) => (
                      <option key={field} value={field}>
                        {labelOf(field)}
                      </option>
                    ))}
                  </select>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, shownRows).map(({ line, cells }) => (
              <tr key={line}>
                <td class="soft">{line}</td>
                {header.map((name, at) => (
                  <td key={`${at} ${name}`} class={columns[at] ? undefined : 'soft'}>
                    <bdi>{cells[at]?.slice(0, 200)}</bdi>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <Picker kind="product" label={words.product} name="template" none={texts.devices.defaultProduct} />
      <Picker kind="organization" label={words.organization} name="organization" none={texts.none} />
      {job && <Progress job={job} />}
    </Form>
  );
}

/** The rows as CSV with the names of the API, in as many parts as there are jobs. */
function* partsOf(rows: readonly SheetRow[], columns: readonly string[]): Generator<{ rows: SheetRow[]; csv: string }> {
  const places = columns.flatMap((field, at) => (field === '' ? [] : [at]));
  const head = places.map((at) => csvCell(columns[at] ?? '')).join(',');
  let [some, csv]: [SheetRow[], string] = [[], head];
  for (const row of rows) {
    const line = places.map((at) => csvCell(row.cells[at] ?? '')).join(',');
    // A row of nothing would be none for the API, and those after it would have other numbers.
    if (/^,*$/.test(line)) continue;
    if (some.length === maxJobRows || csv.length + line.length > maxJobLength) {
      yield { rows: some, csv };
      [some, csv] = [[], head];
    }
    some.push(row);
    csv += `\n${line}`;
  }
  yield { rows: some, csv };
}

async function runJob(csv: string, place: ImportPlace, dryRun: boolean, onProgress: (job: Job) => void): Promise<Job> {
  const query = { accountId: accountId.value, ...place, ...(dryRun ? { dryRun } : { force: true }) };
  const made = api.POST('/api/v1/provisioning/jobs', { params: { query }, ...rawBody(csv, 'text/csv') });
  const { job } = await unwrap(made);
  return finishJob(job.id, onProgress);
}

const states = ['all', 'done', 'skipped', 'failed'] as const;
type State = (typeof states)[number];
const countOf = ({ job }: Part, state: State) => (state === 'all' ? job.total : job[state]);
const sumOf = (parts: readonly Part[], state: State) => parts.reduce((sum, part) => sum + countOf(part, state), 0);

type TriedRow = { id: string; line: number; serialNumber: string; says: string; state: string };
const triedColumns: Column<TriedRow>[] = [
  { name: 'line', label: words.line, show: ({ line }) => line },
  { name: 'serialNumber', label: texts.serialNumber, show: ({ serialNumber }) => <bdi>{serialNumber}</bdi> },
  { name: 'state', label: texts.outcome, show: ({ state }) => words.outcomes[state] ?? state },
  { name: 'says', label: words.with, wrap: true, show: ({ says }) => <bdi>{says}</bdi> },
];

/** What each row would make, and the button that makes it. */
function Make({
  tried,
  onBack,
  onClose,
  onMade,
}: { tried: Tried } & Record<'onBack' | 'onClose' | 'onMade', () => void>) {
  const { parts, place } = tried;
  const [state, setState] = useState<State>('all');
  const [page, setPage] = useState(1);
  const [job, setJob] = useState<Job>();
  const { data, error } = useLoad((signal) => readPage(tried, state, page, signal), [state, page]);
  const make = async () => {
    const jobs: Job[] = [];
    for (const { csv } of parts) jobs.push(await runJob(csv, place, false, setJob));
    const [done, failed, skipped] = (['done', 'failed', 'skipped'] as const).map((name) =>
      jobs.reduce((sum, one) => sum + one[name], 0),
    );
    toast(texts.bulk.finished({ done: done ?? 0, failed: failed ?? 0, skipped: skipped ?? 0 }));
    onMade();
  };
  return (
    <>
      <p class="note">{words.would(sumOf(parts, 'done'), sumOf(parts, 'skipped'), sumOf(parts, 'failed'))}</p>
      <div class="row outcomes">
        <Button label={words.back} class="plain" onClick={onBack} />
        {states.map((one) => (
          <Button
            label={words.shows[one](sumOf(parts, one))}
            key={one}
            aria-pressed={state === one}
            class={state === one ? 'primary' : undefined}
            onClick={() => {
              setState(one);
              setPage(1);
            }}
          />
        ))}
      </div>
      <Table label={words.title} rows={data} columns={triedColumns} error={error} empty={words.noRows} />
      <Pager page={page} pageSize={pageSize} count={sumOf(parts, state)} onPage={setPage} />
      {job && <Progress job={job} />}
      {sumOf(parts, 'done') > 0 ? (
        <Form save={make} verb={words.make(sumOf(parts, 'done'))} onCancel={onClose} light />
      ) : (
        <CloseButton onClose={onClose} />
      )}
    </>
  );
}

/** One page of the rows that were tried; every part has pages of its own. */
async function readPage(
  { parts, columns }: Tried,
  state: State,
  page: number,
  signal: AbortSignal,
): Promise<TriedRow[]> {
  let left = page;
  for (const part of parts) {
    const pages = Math.ceil(countOf(part, state) / pageSize);
    if (left > pages) left -= pages;
    else {
      const query = { page: left, pageSize, ...(state !== 'all' && { state }) };
      const params = { path: { id: part.job.id }, query };
      const { rows } = await unwrap(api.GET('/api/v1/provisioning/jobs/{id}/rows', { params, signal }));
      return (rows.results ?? []).map(({ row, state: outcome, errors }) => {
        const { line = row, cells = [] } = part.rows[row - 1] ?? {};
        const values = columns.flatMap((field, at) =>
          field === '' || field === 'serialNumber' || !cells[at] ? [] : [`${labelOf(field)}: ${cells[at]}`],
        );
        const faults = errors.map(({ column, message }) => (column ? `${labelOf(column)}: ${message}` : message));
        const says = outcome === 'done' ? values : faults;
        return {
          id: `${part.job.id} ${row}`,
          line,
          serialNumber: cells[columns.indexOf('serialNumber')] ?? '',
          says: says.join(' · '),
          state: outcome,
        };
      });
    }
  }
  return [];
}
