/** What the URLs of every kind have in common: rights, errors, and what the OpenAPI document says of them. */

import type { FailureKind } from '../core/errors.ts';
import type { Action } from '../core/rights.ts';
import type { Tag } from '../http/openapi/document.ts';

const versioned = ['etagMissing', 'etagInvalid', 'deleted', 'staleVersion'] as const;

interface Common {
  action: Action;
  errors: readonly FailureKind[];
  /** The `operationId` goes on with the name of the kind. */
  operation: string;
  /** Of one entity in words, or of several in the verbs of `lists`. */
  summary(what: string): string;
  description: string;
}

/** The trash is for callers that may delete. */
export const verbs = {
  create: {
    action: 'create',
    errors: ['notFound', 'forbidden'],
    operation: 'create',
    summary: (what) => `Create ${withArticle(what)}`,
    description: 'With an Idempotency-Key you can retry it safely.',
  },
  read: {
    action: 'read',
    errors: ['notFound', 'deleted', 'forbidden'],
    operation: 'get',
    summary: (what) => `Read ${withArticle(what)}`,
    description: 'Its version is needed to change or delete it.',
  },
  update: {
    action: 'update',
    errors: ['notFound', ...versioned, 'forbidden'],
    operation: 'update',
    summary: (what) => `Update ${withArticle(what)}`,
    description: 'Changes what the body names. The etag header must be its version.',
  },
  remove: {
    action: 'delete',
    errors: ['notFound', ...versioned, 'forbidden'],
    operation: 'delete',
    summary: (what) => `Move ${withArticle(what)} to the trash`,
    description: 'The etag header must be its version. It can be recovered for 30 days.',
  },
  list: {
    action: 'read',
    errors: ['notFound', 'pageOutside', 'forbidden'],
    operation: 'list',
    summary: (what) => `List ${what}`,
    description: 'Returns one page. Filters are combined: an entity must match all of them.',
  },
  readTrash: {
    action: 'delete',
    errors: ['notFound', 'forbidden'],
    operation: 'getDeleted',
    summary: (what) => `Read a deleted ${what}`,
    description: 'Its version is needed to recover it.',
  },
  listTrash: {
    action: 'delete',
    errors: ['notFound', 'pageOutside', 'forbidden'],
    operation: 'listDeleted',
    summary: (what) => `List deleted ${what}`,
    description: 'Returns one page of the trash, the newest deletion first.',
  },
  recover: {
    action: 'delete',
    errors: ['notFound', ...versioned, 'forbidden'],
    operation: 'recover',
    summary: (what) => `Recover a deleted ${what}`,
    description: 'The etag header must be its version in the trash. It gets a new version.',
  },
} as const satisfies Record<string, Common>;

export type Verb = keyof typeof verbs;

export const lists: ReadonlySet<Verb> = new Set(['list', 'listTrash']);

/** Of the verb `remove` where a kind has no trash. */
const permanent = 'The etag header must be its version. It cannot be recovered.';

interface Named {
  tag: Tag;
  wrapper: string;
  plural: string;
  trash?: unknown;
}

/** What the document says of a verb of a kind. Generated clients call operations `createDevice` or `listDeletedDevices`. */
export function textsOf(kind: Named, verb: Verb, said: { summary?: string; description?: string }) {
  const name = lists.has(verb) ? kind.plural : kind.wrapper;
  const { operation, summary, description } = verbs[verb];
  return {
    tags: [kind.tag],
    operationId: `${operation}${name.charAt(0).toUpperCase()}${name.slice(1)}`,
    summary: said.summary ?? summary(inWords(name)),
    description: said.description ?? (verb === 'remove' && !kind.trash ? permanent : description),
  };
}

/** `endUserTemplate` is end-user template, `deviceField` device custom field. */
export function inWords(name: string): string {
  const words = name.replace(/[A-Z]/g, (capital) => ` ${capital.toLowerCase()}`);
  return words.replace('end user', 'end-user').replace(' field', ' custom field');
}

function withArticle(words: string): string {
  return `${/^[aeiou]/.test(words) ? 'an' : 'a'} ${words}`;
}
