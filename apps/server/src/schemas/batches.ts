/** `/v1/files` and `/v1/batches` */
import { Type, type Static } from 'typebox';

/** What lines may ask for. */
export const batchEndpoints = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/rerank'] as const;

export type BatchEndpoint = (typeof batchEndpoints)[number];

const UnixSeconds = Type.Integer({ description: 'Seconds since 1970.' });

export const FileObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('file'),
    bytes: Type.Integer(),
    created_at: UnixSeconds,
    filename: Type.String(),
    purpose: Type.Enum(['batch', 'batch_output']),
    status: Type.Literal('processed'),
  },
  { $id: 'File' },
);
export type FileObject = Static<typeof FileObject>;

const pageFields = {
  object: Type.Literal('list'),
  first_id: Type.Union([Type.String(), Type.Null()]),
  last_id: Type.Union([Type.String(), Type.Null()]),
  has_more: Type.Boolean(),
};

export const FileList = Type.Object({ ...pageFields, data: Type.Array(FileObject) }, { $id: 'FileList' });

export const DeletedFile = Type.Object(
  { id: Type.String(), object: Type.Literal('file'), deleted: Type.Boolean() },
  { $id: 'DeletedFile' },
);

/** Parameters of lists. */
export const ListQuery = Type.Object({
  after: Type.Optional(Type.String({ description: 'The id after which the page begins.' })),
  limit: Type.Optional(Type.String({ pattern: '^[0-9]{1,5}$', description: 'Maximum number of objects. Default 20.' })),
  order: Type.Optional(Type.Enum(['asc', 'desc'], { description: 'By time. Default desc.' })),
  purpose: Type.Optional(Type.String()),
});
export type ListQuery = Static<typeof ListQuery>;

const Metadata = Type.Record(Type.String(), Type.String());

export const BatchRequest = Type.Object(
  {
    input_file_id: Type.String(),
    endpoint: Type.Enum([...batchEndpoints]),
    completion_window: Type.String({
      pattern: '^[1-9][0-9]{0,4}[smhd]$',
      description:
        'Time after which unfinished lines expire, such as 24h. Other values than 24h are an extension of the OpenAI API.',
    }),
    metadata: Type.Optional(Metadata),
  },
  { $id: 'BatchRequest', additionalProperties: false },
);
export type BatchRequest = Static<typeof BatchRequest>;

const BatchErrors = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(
    Type.Object({
      code: Type.String(),
      message: Type.String(),
      line: Type.Union([Type.Integer(), Type.Null()]),
      param: Type.Null(),
    }),
  ),
});

export const BatchObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('batch'),
    endpoint: Type.Enum([...batchEndpoints]),
    errors: Type.Union([BatchErrors, Type.Null()]),
    input_file_id: Type.String(),
    completion_window: Type.String(),
    status: Type.Enum([
      'validating',
      'failed',
      'in_progress',
      'finalizing',
      'completed',
      'expired',
      'cancelling',
      'cancelled',
    ]),
    output_file_id: Type.Optional(Type.String()),
    error_file_id: Type.Optional(Type.String()),
    created_at: UnixSeconds,
    expires_at: UnixSeconds,
    in_progress_at: Type.Optional(UnixSeconds),
    finalizing_at: Type.Optional(UnixSeconds),
    completed_at: Type.Optional(UnixSeconds),
    failed_at: Type.Optional(UnixSeconds),
    expired_at: Type.Optional(UnixSeconds),
    cancelling_at: Type.Optional(UnixSeconds),
    cancelled_at: Type.Optional(UnixSeconds),
    request_counts: Type.Object({ total: Type.Integer(), completed: Type.Integer(), failed: Type.Integer() }),
    metadata: Type.Union([Metadata, Type.Null()]),
  },
  { $id: 'Batch' },
);
export type BatchObject = Static<typeof BatchObject>;

export const BatchList = Type.Object({ ...pageFields, data: Type.Array(BatchObject) }, { $id: 'BatchList' });

const Lines = Type.Object({
  waiting: Type.Integer(),
  running: Type.Integer(),
  completed: Type.Integer(),
  failed: Type.Integer(),
});

/** What an operator looks at. */
export const JobOverview = Type.Object(
  {
    queues: Type.Array(
      Type.Object({
        queue: Type.String({ description: 'The model that the lines ask for.' }),
        waiting: Type.Integer(),
        running: Type.Integer(),
        workers: Type.Array(Type.Object({ name: Type.String(), running: Type.Integer() })),
      }),
    ),
    batches: Type.Array(
      Type.Object({
        id: Type.String(),
        status: Type.String(),
        endpoint: Type.String(),
        created_at: UnixSeconds,
        lines: Lines,
        lines_per_second: Type.Number({ description: 'Of the last minute.' }),
        seconds_left: Type.Union([Type.Number(), Type.Null()]),
        failures: Type.Array(Type.Object({ line: Type.Integer(), code: Type.String(), message: Type.String() }), {
          description: 'The first failed lines.',
        }),
      }),
    ),
  },
  { $id: 'JobOverview' },
);
export type JobOverview = Static<typeof JobOverview>;
