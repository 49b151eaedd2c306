/** Devices from and to CSV. */
import { useState } from 'preact/hooks';
import { spreadsheetCell } from '../../src/core/formats/spreadsheets.ts';
import { api, rawBody, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { downloadCsv } from '../parts/download.ts';
import { Check, Form, TextArea, type Values } from '../parts/form.tsx';
import type { Sort } from '../parts/lists/table.tsx';
import { Picker } from '../parts/picker.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { finishJob, type Job, Progress } from './bulk.tsx';
import { type DeviceFilter, readColumns } from './query.ts';

const words = texts.devices;
const exported = [
  'id',
  'serialNumber',
  'deviceTemplateId',
  'organizationId',
  'provisioningState',
  'firmwareVersion',
  'connected',
  'lastConnected',
  'created',
] as const;
const maxExported = 100_000;

/** A cell that no spreadsheet takes for a formula. */
function cell(value: unknown): string {
  return typeof value === 'number' ? String(value) : spreadsheetCell(String(value ?? ''));
}

/** Saves the devices that match the filters. A browser holds the whole file, so it has a limit, which is said. */
export async function exportDevices(filter: DeviceFilter, sort: Sort): Promise<void> {
  const lines = [exported.join(',')];
  const pageSize = 1000;
  let count = 0;
  for (let page = 1; page <= maxExported / pageSize; page += 1) {
    const { results = [], meta } = await readColumns({ filter, sort, page, pageSize }, exported);
    lines.push(...results.map((row) => exported.map((name) => cell(row[name])).join(',')));
    count = meta?.count ?? 0;
    if (results.length === 0 || page * pageSize >= count) break;
  }
  downloadCsv('devices', lines.join('\r\n'));
  if (count > maxExported) toast(words.exportCut(maxExported, count));
}

/** The text of a file that is not UTF-8, and the first line of it that shows. */
interface Foreign {
  text: string;
  line: string;
}

/** The text of a file, or what it is when it is read as spreadsheets of Windows write it; UTF-16 is neither. */
async function textOf(file: File): Promise<string | Foreign | undefined> {
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const text = new TextDecoder('windows-1252').decode(bytes);
    const line = text.split(/[\r\n]/).find((one) => /[^\0-\x7f]/.test(one)) ?? '';
    return text.includes('\0') ? undefined : { text, line };
  }
}

/** Makes a provisioning job of a CSV; its results wait in the factory. */
export function Import({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [job, setJob] = useState<Job>();
  const [foreign, setForeign] = useState<Foreign>();
  const run = async ({ rows = '', template, organization, foreignText }: Values, form: HTMLFormElement) => {
    const file = form.querySelector<HTMLInputElement>('input[type=file]')?.files?.[0];
    const text = file ? await textOf(file) : rows;
    if (text === undefined) throw new Error(words.notUtf8);
    if (typeof text === 'object') setForeign(text);
    if (typeof text === 'object' && !foreignText) throw new Error(words.notUtf8);
    const body = typeof text === 'object' ? text.text : text;
    const query = { accountId: accountId.value, ...(template && { template }), ...(organization && { organization }) };
    const answer = await unwrap(
      api.POST('/api/v1/provisioning/jobs', {
        params: { query },
        ...rawBody(body, 'text/csv'),
      }),
    );
    const end = await finishJob(answer.job.id, setJob);
    toast(texts.bulk.finished(end));
    onDone();
    onClose();
  };
  return (
    <Dialog title={words.import} onClose={onClose}>
      <Form save={run} verb={words.import} onCancel={onClose}>
        <p class="soft">{words.importHint}</p>
        <label class="field">
          {words.file}
          <input type="file" accept=".csv,text/csv" onChange={() => setForeign(undefined)} />
        </label>
        {foreign && <Check label={words.readForeign(foreign.line)} name="foreignText" value="true" />}
        <TextArea label={words.rows} name="rows" hint={words.rowsHint} />
        <Picker kind="product" label={words.product} name="template" none={words.defaultProduct} />
        <Picker kind="organization" label={words.organization} name="organization" none={texts.none} />
        {job && <Progress job={job} />}
      </Form>
    </Dialog>
  );
}
