/** Session files: header, metadata and sections with matching checksums, and the bytes. */
import { memorySink, memorySource } from '@winnow/bytes';
import { loadModel } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { bytesSection, openSession, writeSession, type SessionContents } from '@winnow/kv-cache';
import { createReferenceBackend } from '@winnow/ops';
import { WinnowError } from '@winnow/tensor';
import { mutateBytes, mutateJson, pick, type JsonTree, type Random } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyFiles } from '../tiny-model.ts';

/** An input is the contents of a file as JSON, which `run` writes with checksums; others are bytes of a file. */
interface Draft {
  readonly modelHash: string;
  readonly options: SessionContents['options'];
  readonly metadata: JsonTree;
  /** Names and bytes in base64. */
  readonly sections: readonly (readonly [name: string, base64: string])[];
}

const marker = '{"modelHash"';

function mutate(random: Random, input: Uint8Array): Uint8Array {
  const text = textOf(input);
  if (!text.startsWith(marker)) return mutateBytes(random, input);
  const draft = JSON.parse(text) as Draft;
  if (random.nextInt(3) === 0)
    return bytesOf(JSON.stringify({ ...draft, metadata: mutateJson(random, draft.metadata) }));
  const [name] = pick(random, draft.sections);
  const sections = draft.sections.flatMap(([each, base64]): (readonly [string, string])[] => {
    if (each !== name) return [[each, base64]];
    if (random.nextInt(8) === 0) return [];
    const bytes = mutateBytes(random, new Uint8Array(Buffer.from(base64, 'base64')));
    return [[each, Buffer.from(bytes).toString('base64')]];
  });
  return bytesOf(JSON.stringify({ ...draft, sections }));
}

async function fileOf(input: Uint8Array): Promise<Uint8Array> {
  const text = textOf(input);
  if (!text.startsWith(marker)) return input;
  const { sections, ...header } = JSON.parse(text) as Draft;
  const sink = memorySink();
  await writeSession(sink, {
    ...(header as Omit<SessionContents, 'sections'>),
    sections: sections.map(([name, base64]) => bytesSection(name, Buffer.from(base64, 'base64'))),
  });
  return sink.toBytes();
}

export async function createTarget(): Promise<Target> {
  const backend = createReferenceBackend();
  const model = await loadModel(memoryFolder(await tinyFiles()), { backend, context: 256, maxSessions: 2 });
  using session = model.createSession();
  await session.generate('Once upon a time, the', { maxTokens: 3, seed: 1 }).result();
  const sink = memorySink();
  await session.save(sink);
  const saved = await openSession(memorySource(sink.toBytes()));
  const sections = await Promise.all(
    saved.sections.map(async ({ name }) => [name, Buffer.from(await saved.readAll(name)).toString('base64')] as const),
  );
  const { modelHash, options, metadata } = saved;
  const draft: Draft = { modelHash, options, metadata: metadata as JsonTree, sections };
  return {
    examples: [bytesOf(JSON.stringify(draft)), sink.toBytes().slice()],
    mutate,
    async run(input) {
      using restored = await model.restoreSession(memorySource(await fileOf(input), 'fuzz.session'));
      // a session without a generation cannot be resumed
      await restored
        .resume({ maxTokens: 2 })
        .result()
        .catch((error: unknown) => {
          if (!WinnowError.isInstance(error)) throw error;
        });
      await restored.generate('Once upon a time, the end', { maxTokens: 2 }).result();
    },
  };
}
