/** `--models-file`: the settings of single models, among them options of `loadModel`. */
import { readFileSync } from 'node:fs';
import { Command, type Option } from 'commander';
import type { EmbeddingModel } from '@winnow/engine';
import { checkOptions, isRecord, UnknownOptionError, type NameTree } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import type { LoadFlags } from '../../flags/load.js';
import { ModelOptionsReader } from './model-options.js';

/** Flags of a model. */
export interface ModelFlags extends LoadFlags {
  readonly pooling?: EmbeddingModel['pooling'];
}

/** The settings of a model. */
export interface ModelSettings {
  /** A path, a URL or a repository of the hub. Default: the model of this name in the folder or on the hub. */
  readonly model: string | undefined;
  readonly aliases: readonly string[];
  /** Idle time in seconds after which it is unloaded. */
  readonly unloadAfter: number | undefined;
  readonly flags: Partial<ModelFlags>;
}

export interface SettingsFile {
  readonly defaults: Partial<ModelFlags>;
  readonly models: ReadonlyMap<string, ModelSettings>;
}

/** Settings of a model that are not options of `loadModel`. */
const ownNames: NameTree = { model: true, aliases: true, unloadAfter: true };

export const noSettings: SettingsFile = { defaults: {}, models: new Map() };

/**
 * @param options the flags that a model may have
 * @throws {UsageError} naming the setting that is wrong
 */
export function readSettings(path: string, options: readonly Option[]): SettingsFile {
  const reader = new SettingsReader(path, options);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UsageError(`--models-file: ${path} cannot be read: ${(error as Error).message}`);
  }
  return reader.file(value);
}

class SettingsReader {
  readonly #path: string;
  readonly #options: ModelOptionsReader;

  constructor(path: string, options: readonly Option[]) {
    this.#path = path;
    this.#options = new ModelOptionsReader(options, (...refused) => this.#refuse(...refused));
  }

  file(value: unknown): SettingsFile {
    const file = this.#object(value, 'the file');
    this.#checkNames(file, { defaults: true, models: true });
    const { defaults = {}, models = {} } = file;
    const named = Object.entries(this.#object(models, 'models')).map(
      ([id, model]) => [id, this.#model(id, model)] as const,
    );
    const common = this.#object(defaults, 'defaults');
    this.#checkNames(common, this.#options.names, 'defaults: ');
    const settings = { defaults: this.#options.read(common, 'defaults'), models: new Map(named) };
    this.#checkAliases(settings.models);
    return settings;
  }

  #model(id: string, value: unknown): ModelSettings {
    const place = `models.${id}`;
    if (id === '') throw this.#refuse(place, 'an id', id);
    const given = this.#object(value, place);
    this.#checkNames(given, { ...this.#options.names, ...ownNames }, `${place}: `);
    const { model, aliases = [], unloadAfter, ...rest } = given;
    if (model !== undefined && typeof model !== 'string') throw this.#refuse(`${place}.model`, 'a text', model);
    if (!Array.isArray(aliases) || !aliases.every((alias) => typeof alias === 'string' && alias !== '')) {
      throw this.#refuse(`${place}.aliases`, 'a list of names', aliases);
    }
    if (unloadAfter !== undefined && !(typeof unloadAfter === 'number' && unloadAfter >= 0)) {
      throw this.#refuse(`${place}.unloadAfter`, 'a number of seconds from 0', unloadAfter);
    }
    return { model, aliases: aliases as string[], unloadAfter, flags: this.#options.read(rest, place) };
  }

  /** @throws {UsageError} when a name means two models */
  #checkAliases(models: SettingsFile['models']): void {
    const known = new Set(models.keys());
    for (const [id, { aliases }] of models) {
      for (const alias of aliases) {
        if (known.has(alias)) throw this.#refuse(`models.${id}.aliases`, 'names of one model', alias);
        known.add(alias);
      }
    }
  }

  #object(value: unknown, place: string): Record<string, unknown> {
    if (isRecord(value) && !Array.isArray(value)) return value;
    throw this.#refuse(place, 'an object', value);
  }

  /** @throws {UsageError} for a name that does not exist */
  #checkNames(value: object, names: NameTree, place = ''): void {
    try {
      checkOptions(value, names);
    } catch (error) {
      if (!UnknownOptionError.isInstance(error)) throw error;
      throw new UsageError(`--models-file: ${this.#path}: ${place}${error.message}`);
    }
  }

  #refuse(place: string, expected: string, actual: unknown): UsageError {
    return new UsageError(
      `--models-file: ${this.#path}: ${place}: expected ${expected}, got ${JSON.stringify(actual)}`,
    );
  }
}

/** The options of commands that only carry flags. */
export function optionsOf(...groups: readonly ((command: Command) => unknown)[]): readonly Option[] {
  const command = new Command();
  for (const add of groups) add(command);
  return command.options;
}
