/** The email addresses of people, read for a whole page at once. */
import { api, done } from '../app/api.ts';
import { texts } from '../texts.ts';

export async function withEmails<T extends { userId: string | null }>({
  results = [],
  ...rest
}: {
  results?: T[];
  meta?: { count: number };
}) {
  const userIds = results.flatMap(({ userId }) => userId ?? []);
  const people = userIds.length === 0 ? [] : (await done(api.POST('/api/v1/users/batch', { body: { userIds } }))).users;
  const emails = new Map(people.map(({ userId, emailAddress }) => [userId, emailAddress]));
  const named = results.map((one) => ({ ...one, email: emails.get(one.userId ?? '') ?? texts.people.noLogin }));
  return { ...rest, results: named };
}
