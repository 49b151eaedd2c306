/** The email addresses of people, read for a whole page at once. */
import { api, unwrap } from '../app/api.ts';
import { texts } from '../texts.ts';

interface List<T> {
  results?: T[];
  meta?: { count: number };
}

export async function withEmails<T extends { userId: string | null }>(list: List<T>) {
  const { results, ...rest } = await withKnownEmails(list);
  return { ...rest, results: results.map((one) => ({ ...one, email: one.email ?? texts.people.noLogin })) };
}

/** `email` is left out where a person has no login, or the caller does not reach it. */
export async function withKnownEmails<T extends { userId: string | null }>({ results = [], ...rest }: List<T>) {
  const userIds = results.flatMap(({ userId }) => userId ?? []);
  const people =
    userIds.length === 0 ? [] : (await unwrap(api.POST('/api/v1/users/batch', { body: { userIds } }))).users;
  const emails = new Map(people.map(({ userId, emailAddress }) => [userId, emailAddress]));
  return { ...rest, results: results.map((one) => ({ ...one, email: emails.get(one.userId ?? '') })) };
}
