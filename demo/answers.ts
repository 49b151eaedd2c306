/** What the demo reads of answers. */

export interface Login {
  jwt: string;
}

/** Anything that the demo makes: organizations, templates, devices, packages. */
export interface Made {
  id: string;
  version: string;
}

export interface List<T> {
  results: T[];
  meta: { count: number };
}
