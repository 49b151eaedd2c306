/** Reads the list of passwords, sends what of it the rule on length lets through, and ends, list and all. */
import { parentPort } from 'node:worker_threads';
import { dictionary } from '@zxcvbn-ts/language-common';
import { leastCharacters } from './common-passwords.js';

/** The most common come first. */
const refused = 10_000;

const common = dictionary['passwords-common'].slice(0, refused);
parentPort?.postMessage(common.filter((password) => password.length >= leastCharacters));
