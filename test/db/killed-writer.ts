/** Appends points in twenty lanes and prints each that is acknowledged, until it is killed (series.test.ts). */
import { MessageStore, type SeriesKey } from '../../db/messages/store.ts';

const [directory = '', time = '', keyText = ''] = process.argv.slice(2);
const now = Number(time);
const key = JSON.parse(keyText) as SeriesKey;
const store = await MessageStore.open(directory, { log: console });
let written = 0;

function append(): void {
  written += 1;
  const value = written;
  const point = { time: now + value, category: 'c', numericValue: value, stringValue: null };
  store.append(key, [point], (error) => {
    if (!error) process.stdout.write(`${value}\n`);
    append();
  });
}

for (let lane = 0; lane < 20; lane += 1) append();
