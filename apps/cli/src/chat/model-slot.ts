/** Holds the model of a chat, which another model may replace. */
import { UsageError } from '../errors/errors.js';
import { samplingOf } from '../flags/engine-options.js';
import type { GenerationFlags } from '../flags/generation.js';
import type { LoadFlags } from '../flags/load.js';
import { displayName } from '../models/model-location.js';
import { locateModel, openDraftedModel, type OpenContext } from '../models/open-model.js';
import type { SessionFiles } from '../models/session-files.js';
import type { ConversationModel } from './conversation.js';

export interface SlotOptions {
  readonly flags: LoadFlags & GenerationFlags;
  readonly seed: number;
  readonly files: SessionFiles;
}

export class ModelSlot implements AsyncDisposable {
  readonly #options: SlotOptions;
  #name: string | undefined;
  #current: ConversationModel;

  private constructor(name: string | undefined, current: ConversationModel, options: SlotOptions) {
    this.#name = name;
    this.#current = current;
    this.#options = options;
  }

  /**
   * Loads a model, and the session of `--load-session`.
   * @throws {UsageError} for a model without a chat template
   */
  static async open(name: string | undefined, options: SlotOptions, context: OpenContext): Promise<ModelSlot> {
    return new ModelSlot(name, await openIn(name, options, context, true), options);
  }

  get current(): ConversationModel {
    return this.#current;
  }

  /**
   * Loads another model with the same flags. The current one is unloaded first, and loaded again if the other one
   * cannot be loaded.
   * @throws what `open` throws
   */
  async replace(name: string, context: OpenContext): Promise<void> {
    const { mmproj } = this.#options.flags;
    // download while the current model is still loaded
    await locateModel(name, context, { mmproj: mmproj === undefined });
    await dispose(this.#current);
    try {
      this.#current = await openIn(name, this.#options, context, false);
      this.#name = name;
    } catch (error) {
      const { signal } = new AbortController();
      this.#current = await openIn(this.#name, this.#options, { ...context, signal }, false);
      throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return dispose(this.#current);
  }
}

async function openIn(
  name: string | undefined,
  { flags, seed, files }: SlotOptions,
  context: OpenContext,
  hasSession: boolean,
): Promise<ConversationModel> {
  const model = await openDraftedModel(name, flags, context);
  try {
    if (model.chatTemplate === undefined) {
      throw new UsageError(
        `chat: expected a model with a chat template, got ${model.name}, which has none; try winnow run`,
      );
    }
    const session = hasSession ? await files.open(model, context.signal) : model.createSession();
    return {
      model,
      session,
      name: displayName(name, model.name),
      sampling: samplingOf(flags, model.defaultSampling, seed),
    };
  } catch (error) {
    await model.dispose();
    throw error;
  }
}

async function dispose({ model, session }: ConversationModel): Promise<void> {
  session.dispose();
  await model.dispose();
}
