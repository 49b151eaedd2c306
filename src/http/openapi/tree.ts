/** The OpenAPI document as a tree of JSON, of which nothing is known until it is looked at. */
export type Json = unknown;
export type Tree = { [name: string]: Json };

/** `value` if it is an object, else an empty one. */
export const asTree = (value: Json): Tree =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Tree) : {};

/** `value` if it is an array, else an empty one. */
export const asList = (value: Json): Json[] => (Array.isArray(value) ? value : []);
