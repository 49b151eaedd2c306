import { api, unwrap } from '../app/api.ts';

/** The email addresses of people by their user ids, without those who have no login or whom the caller does not reach. */
export async function emailsOf(people: ReadonlyArray<{ userId: string | null }>): Promise<Map<string | null, string>> {
  const userIds = people.flatMap(({ userId }) => userId ?? []);
  const users =
    userIds.length === 0 ? [] : (await unwrap(api.POST('/api/v1/users/batch', { body: { userIds } }))).users;
  return new Map(users.map(({ userId, emailAddress }) => [userId, emailAddress]));
}
