import { BadFilter, parseFilter, parsePath } from '../../src/entity/filters/parser.ts';
import { demandedValue, fits } from '../../src/identity/scim/filters.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const enterprise = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';
const ada = {
  userName: 'Ada@Example.com',
  externalId: 'aB1',
  name: { familyName: 'Lovelace', givenName: 'Ada' },
  active: true,
  logins: 12,
  title: '',
  emails: [
    { value: 'ada@work.example', type: 'work', primary: true },
    { value: 'ada@home.example', type: 'home' },
  ],
  meta: { lastModified: '2026-03-01T10:00:00.000Z' },
  [enterprise]: { department: 'Engines', manager: { value: '7' } },
};
const attributes = { isExact: ({ names }: { names: readonly string[] }) => names.at(-1) === 'externalId' };
const isRefused = (work: () => unknown) => {
  try {
    work();
    return false;
  } catch (error) {
    return error instanceof BadFilter;
  }
};
const decide = (filter: string) => fits(parseFilter(filter), ada, attributes);

t.test('every operator, in any letter case, with and, or, not, groups and values in brackets', (t) => {
  for (const filter of [
    'userName eq "ada@example.COM"',
    'USERNAME Eq "ada@example.com"',
    'externalId eq "aB1"',
    'externalId ne "ab1"',
    'name.familyName co "lace" and name.givenName sw "A"',
    'emails co "@home."',
    'emails.value ew ".example"',
    'emails[type eq "work"]',
    'emails[type eq "work"].value eq "ada@work.example"',
    'emails[type eq "home" and not (primary eq true)]',
    'urn:ietf:params:scim:schemas:core:2.0:User:userName pr',
    `${enterprise}:department eq "engines"`,
    `${enterprise}:manager.value eq "7"`,
    'active eq True',
    'active eq "True"',
    'logins gt 11 and logins ge 12 and logins lt 13 and logins le 12',
    'meta.lastModified gt "2026-03-01T09:59:59Z"',
    'meta.lastModified lt "2026-03-01T12:00:00+01:00"',
    'nickName eq null and userName ne null',
    'not (title pr)',
    'userName eq "x" or userName eq "y" or name pr',
    'userName eq "x" and name pr or name pr',
    '(userName eq "x" or name pr) and active eq true',
    'nickName ne "x"',
    'userName ne "a \\"quoted\\" \\u0041"',
  ])
    t.equal(decide(filter), true, filter);
  for (const filter of [
    'externalId eq "ab1"',
    'emails[type eq "work" and value co "home"]',
    'title pr',
    'name.familyName eq null',
    'name.familyName co "lace" and not (name.givenName sw "A")',
    'constructor pr',
    'userName eq "x" or userName eq "y" and name pr',
    'logins gt 12',
    'meta.lastModified gt "2026-03-01T11:00:00+01:00"',
  ])
    t.equal(decide(filter), false, filter);
  t.end();
});

t.test('what is no filter is refused, and none is too long, too wide or too deep', (t) => {
  for (const filter of [
    '',
    'userName',
    'userName eq',
    'userName is "x"',
    'userName eq x',
    'userName eq "x',
    'userName eq "x" and',
    '(userName pr',
    'userName pr)',
    'emails[type eq "work"',
    'emails[type eq "work"].',
    '"userName" eq "x"',
    'not userName pr',
    '__proto__ pr',
    `userName eq "${'x'.repeat(4000)}"`,
    Array.from({ length: 101 }, () => 'a pr').join(' or '),
    `${'('.repeat(21)}a pr${')'.repeat(21)}`,
  ])
    t.ok(
      isRefused(() => parseFilter(filter)),
      filter.slice(0, 60),
    );
  t.ok(parseFilter(`${'('.repeat(20)}a pr${')'.repeat(20)}`));
  t.end();
});

t.test('paths of PATCH, and the value that a filter demands', (t) => {
  t.match(parsePath('emails[type eq "work"].value'), {
    path: { names: ['emails'] },
    where: { is: 'eq' },
    sub: 'value',
  });
  t.match(parsePath('name.givenName'), { path: { schema: undefined, names: ['name', 'givenName'] }, where: undefined });
  t.match(parsePath(`${enterprise}:department`), { path: { schema: enterprise, names: ['department'] } });
  t.ok(isRefused(() => parsePath('emails[type eq "work"].value.more')));
  const demanded = (filter: string, ...names: string[]) => demandedValue(parseFilter(filter), ...names);
  t.equal(demanded('active eq true and (USERNAME eq "ada")', 'userName'), 'ada');
  t.equal(demanded('emails[type eq "work" and value eq "a"]', 'emails', 'value'), 'a');
  t.equal(demanded('userName eq "ada" or active eq true', 'userName'), undefined);
  t.equal(demanded('not (userName eq "ada")', 'userName'), undefined);
  t.end();
});

t.end();
