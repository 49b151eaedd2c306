/** POST /provisioning/jobs: rows come in, and a job is made of them. And what a line must know to make single units. */
import { type Static, Type } from 'typebox';
import { Id } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import type { App } from '../../http/app.ts';
import { nameIgnored } from '../../http/ignored-names.ts';
import { Intake } from '../../http/intake.ts';
import { brokerUrl, claimUrl } from '../../registry/addresses.ts';
import type { FactoryContext } from '../context.ts';
import { demandRowRights, type Job, showJob } from '../jobs/job.ts';
import { jobResponse, jobsPath } from '../jobs/routes.ts';
import { checksumOf, findByChecksum, makeJob } from '../jobs/store.ts';
import { defaultPlace, namedPlace } from './places.ts';
import { knownColumns } from './provision.ts';
import { maxBytes, maxRows, RowsIn, readRows, rowTypes } from './rows.ts';

const query = Type.Object({
  accountId: Type.Optional(Type.String({ description: "The id of the caller's account. Another id answers 404." })),
  template: Type.Optional(
    Type.String({
      description: 'Id or name of the template, for rows that name none. By default the default template.',
    }),
  ),
  organization: Type.Optional(
    Type.String({
      description: 'Id or unique name of the organization, for rows that name none. By default no organization.',
    }),
  ),
  dryRun: Type.Optional(Type.Boolean({ default: false, description: 'Checks every row and creates nothing.' })),
  force: Type.Optional(
    Type.Boolean({ default: false, description: 'Creates a new job even if the same one was requested before.' }),
  ),
});

const columns =
  'Columns: `serialNumber`; `template` or `deviceTemplateId`, `organization` or `organizationId`; whatever POST /devices sets, custom fields among it. Any other is refused.';

export function provisioningRoutes(app: App, ctx: FactoryContext): void {
  // Its bodies are rows: they are read as they come, and are never held as a whole.
  app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    for (const type of rowTypes)
      scope.addContentTypeParser(type, async (request: { caller: Caller }, payload: AsyncIterable<Buffer>) =>
        readRows(type, payload, await knownColumns(ctx, request.caller.accountId)),
      );
    mount(scope as App, ctx);
  });
}

function mount(app: App, ctx: FactoryContext): void {
  const right = ['create', 'job'] as const;
  const intake = new Intake({
    ...{ maxBytes, minBytes: 256 * 1024, perCaller: 2, perAccount: 4, total: 8 },
    message: 'Too many uploads of rows at once.',
  });
  app.post(
    jobsPath,
    {
      bodyLimit: maxBytes,
      config: {
        creates: true,
        made: { at: jobsPath, status: 202 },
        right,
        errors: ['notFound', 'unknownReference', 'forbidden', 'tooMany'],
      },
      schema: {
        tags: ['Jobs'],
        operationId: 'createProvisioningJob',
        summary: `Create up to ${maxRows} devices, each with a credential and an association code`,
        description: `${columns} The same rows with the same parameters from the same caller are the same job, however often they are sent and whatever has become of it. A row whose serial number a device of its template has is skipped; the results are at \`${jobsPath}/{id}/results\`.`,
        querystring: query,
        body: {
          content: {
            'text/csv': { schema: { description: 'The first line names the columns.' } },
            'application/x-ndjson': { schema: { description: 'One JSON object per line.' } },
            'application/json': {
              schema: { properties: { rows: { description: `Objects, one for each device, ${maxRows} at most.` } } },
            },
          },
        },
        response: { 202: jobResponse('The job, which now runs by itself.') },
      },
      // Refused before the body is read.
      preParsing: async (request, reply) => {
        ctx.access.demand(request.caller, ...right);
        demandRights(ctx, request.caller);
        intake.takeRequest(request, reply);
      },
    },
    async (request, reply) => {
      const { caller, body } = request;
      if (!((body as unknown) instanceof RowsIn)) throw invalid('body', 'must be CSV, NDJSON or {"rows":[...]}');
      for (const name of Object.keys(request.query))
        if (!Object.hasOwn(query.properties, name)) throw invalid(name, 'is not a parameter of this endpoint');
      if (request.query.accountId !== undefined) ctx.access.demandAccount(caller, request.query.accountId);
      const rows = body as unknown as RowsIn;
      const job = await intake.use(request, () => provisioningJob(ctx, caller, request.query, rows));
      return reply.status(202).send({ job: showJob(job) });
    },
  );
}

/** Besides the right of the route: what a job does for each row. */
function demandRights({ access }: FactoryContext, caller: Caller): void {
  demandRowRights(access, caller, 'provision');
}

async function provisioningJob(
  ctx: FactoryContext,
  caller: Caller,
  { template = '', organization = '', dryRun = false, force = false }: Static<typeof query>,
  { rows, digest }: RowsIn,
): Promise<Job> {
  const isRepeatable = !dryRun && !force;
  const checksum = checksumOf(caller, 'provision', { template, organization }, digest);
  // Whether the template is still there does not matter to a job that is.
  const known = isRepeatable ? await findByChecksum(ctx.registry, checksum) : undefined;
  if (known) return known;
  const parameters = await defaultPlace(ctx, caller, { template, organization });
  return makeJob(ctx, caller, {
    action: 'provision',
    ...{ parameters, dryRun, rows },
    ...(isRepeatable && { checksum }),
  });
}

const placeQuery = Type.Object({
  template: Type.Optional(Type.String({ description: 'Id or name.' })),
  organization: Type.Optional(Type.String({ description: 'Id or unique name.' })),
});
const addresses = Type.Object(
  {
    provisioning: Type.Object({
      broker: Type.String({ description: 'As `mqtt://host:port`, or `mqtts://host:port` under TLS.' }),
      claimUrl: Type.String({ description: 'The association code of a unit is added to it as `code`.' }),
      deviceTemplateId: Type.Optional(Id),
      organizationId: Type.Optional(Id),
    }),
  },
  { description: 'The addresses, and the ids of what is named.' },
);

/** GET /provisioning/addresses. */
export function addressRoutes(app: App, ctx: FactoryContext): void {
  app.get(
    '/provisioning/addresses',
    {
      config: {
        right: ['create', 'associationCode'],
        errors: ['unknownReference', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Association'],
        operationId: 'getProvisioningAddresses',
        summary: 'Read where units connect and are claimed, and the ids of a named template and organization',
        description: 'The results of provisioning jobs and labels have the same addresses.',
        querystring: placeQuery,
        response: { 200: addresses },
      },
    },
    async (request, reply) => {
      nameIgnored(request, reply, placeQuery);
      const place = await namedPlace(ctx, request.caller, request.query);
      return { provisioning: { broker: brokerUrl(ctx), claimUrl: claimUrl(ctx), ...place } };
    },
  );
}
