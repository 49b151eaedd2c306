/** Types of answers by method and path, from the OpenAPI document of the service (`npm run types` writes them). */
import type { components, paths } from '../../console/api-types.d.ts';

type Segments<P extends string> = P extends `${infer First}/${infer Rest}` ? [First, ...Segments<Rest>] : [P];
type WithoutNames<K extends string> = K extends `${infer Before}{${string}}${infer After}`
  ? `${Before}${string}${WithoutNames<After>}`
  : K;
type WithoutQuery<P extends string> = P extends `${infer Path}?${string}` ? Path : P;

type Known = { [K in keyof paths & string]: Segments<WithoutNames<K>> };
type Matching<S extends string[]> = { [K in keyof Known]: S extends Known[K] ? K : never }[keyof Known];
type Item<P extends string> = P extends keyof paths ? paths[P] : paths[Matching<Segments<P>>];

/** The operations of a path: one, or several where a part of it is not known. */
type Operation<M extends string, P extends string> =
  Item<WithoutQuery<P>> extends infer I ? (I extends Record<Lowercase<M>, infer One> ? One : never) : never;
type Contents<R> = { [S in 200 | 201 | 202]: R extends Record<S, { content: infer C }> ? C : never }[200 | 201 | 202];
type Success<O> = O extends { responses: infer R }
  ? Contents<R> extends infer C
    ? C extends { 'application/json': infer B }
      ? B
      : never
    : never
  : never;

type Names<T> = T extends unknown ? keyof T : never;
type Value<T, N> = T extends unknown ? (N extends keyof T ? T[N] : never) : never;
/** A list as tests read it: it has some elements. */
export type List<E> = [E, E, E, E, ...E[]];
/**
 * A value as tests read it. It has all that it can have, and a list has some elements: assertions say whether they were
 * there. Of several shapes it is all at once.
 */
export type Seen<T> = unknown extends T
  ? unknown
  : [NonNullable<T>] extends [readonly (infer E)[]]
    ? List<Seen<E>>
    : [NonNullable<T>] extends [object]
      ? { [N in Names<NonNullable<T>>]-?: Seen<Value<NonNullable<T>, N>> }
      : NonNullable<T>;

/** What an answer with an error says. */
export type Failure = Seen<components['schemas']['Error']> & Seen<components['schemas']['IdentityError']>;

type Operations = { [P in keyof paths]: paths[P][keyof paths[P] & ('get' | 'post' | 'put' | 'delete')] }[keyof paths];
type Described<O> = O extends unknown ? (unknown extends Success<O> ? never : Success<O>) : never;
type Answers = Described<Operations>;
/** Where one name stands for objects and for texts, the objects. */
type Objects<T> = [Extract<T, object>] extends [never] ? T : Extract<T, object>;
/** All that answers have, for paths that are not known before the test runs. */
export type Anything = { [N in Names<Answers>]: Seen<Objects<Value<Answers, N>>> };

/** What an answer without an error says. */
export type Ok<M extends string, P extends string> = string extends P
  ? Anything
  : [Operation<M, P>] extends [never]
    ? Anything
    : Seen<Success<Operation<M, P>>>;
/** What any answer says. */
export type Body<M extends string, P extends string> = Ok<M, P> & Failure;

/** An entity of a kind that is not known before the test runs. */
export interface Entity {
  id: string;
  accountId: string;
  version: string;
  [name: string]: unknown;
}
/** What was made, by the path without its beginning and its name in the answer. */
export type Created<P extends string, W extends string> = string extends P
  ? Entity
  : Ok<'POST', `/api/v1${P}`> extends Record<W, infer E>
    ? E
    : Entity;

/** A thing as answers show it, by its name there: `device`, `job`, `associationCode`. */
export type Made<N extends keyof Anything> = Anything[N];

/** A point of a time-series. */
export type Point = Anything['result'][number];
