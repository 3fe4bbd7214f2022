/** Resolves MODEL on the command line: a path, a URL, a repository of the hub, or nothing for the demo model. */
import { readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import type { ModelLocation } from '@winnow/engine';
import { UsageError } from '../errors/errors.js';
import { refuse } from '../flags/parse-values.js';
import type { HubRequest } from '../terminal/io.js';
import { suggest } from '../errors/suggestion.js';

/** Display name of a model: its own name, except for the demo model, whose path depends on the installation. */
export function displayName(model: string | undefined, ownName: string): string {
  return isDemoModel(model) ? demoModelName : ownName;
}

const demoModelName = 'winnow-tiny';

/** No name means the demo model, and so does the demo model's own name unless a file has that name. */
function isDemoModel(model: string | undefined): boolean {
  return model === undefined || (model === demoModelName && pathKind(model) === undefined);
}

export type ModelReference =
  | { readonly kind: 'location'; readonly location: ModelLocation }
  /** `isAmbiguous`: without the prefix `hf:`, so it may have been meant as a path. */
  | { readonly kind: 'hub'; readonly request: HubRequest; readonly isAmbiguous: boolean };

const repoPattern = /^\w[\w.-]*\/\w[\w.-]*$/;

export function parseModelReference(model: string | undefined): ModelReference {
  if (model === undefined || isDemoModel(model)) return { kind: 'location', location: demoModelUrl };
  if (model === '') throw refuse('MODEL', 'a path, a URL or a repository', model);
  if (model.startsWith('hf:')) return hubReference(model, model.slice(3));
  if (/^(https?|file|s3):\/\//i.test(model)) return { kind: 'location', location: parseUrl(model) };
  if (pathKind(model) === undefined) {
    const [repo = ''] = model.split(/[:@]/, 1);
    if (repoPattern.test(repo) && !/\.(gguf|safetensors|json)$/i.test(repo)) return hubReference(model, model);
  }
  return { kind: 'location', location: model };
}

function parseUrl(text: string): URL {
  try {
    return new URL(text);
  } catch {
    throw refuse('MODEL', 'a path, a URL or a repository', text);
  }
}

/** `owner/name[@revision][:file]` */
function hubReference(model: string, text: string): ModelReference {
  const match = /^([^:@]+)(?:@([^:]+))?(?::(.+))?$/.exec(text);
  const [, repo = '', revision, file] = match ?? [];
  if (!/^(\w[\w.-]*\/)?\w[\w.-]*$/.test(repo))
    throw refuse('MODEL', 'a repository such as hf:owner/name or hf:owner/name:file.gguf', model);
  return { kind: 'hub', request: { repo, revision, file }, isAmbiguous: model === text };
}

/**
 * Rejects paths that cannot be a model before anything is read.
 * @throws {UsageError} for a weight file of a folder, and for a folder without `config.json`
 */
export function checkModelPath(path: string): void {
  const kind = pathKind(path);
  if (kind === 'file' && isWeightFile(path)) {
    const message = `MODEL: expected the folder of the model, got one of its weight files, ${path}`;
    throw suggest(new UsageError(message), { argument: path, instead: [dirname(path)] });
  }
  if (kind !== 'folder' || pathKind(join(path, 'config.json')) === 'file') return;
  const [gguf] = readdirSync(path)
    .filter((name) => /\.gguf$/i.test(name))
    .sort();
  const error = new UsageError(`MODEL: expected a folder with config.json or a .gguf file, got ${path}`);
  throw gguf === undefined ? error : suggest(error, { argument: path, instead: [join(path, gguf)] });
}

/** A `.safetensors` file may also be a whole model: then it is not beside the settings of one. */
function isWeightFile(path: string): boolean {
  if (/\.safetensors\.index\.json$/i.test(path)) return true;
  return /\.safetensors$/i.test(path) && pathKind(join(dirname(path), 'config.json')) === 'file';
}

/** Whether an argument is a path that exists, a URL or a repository. */
export function isModel(model: string): boolean {
  const reference = parseModelReference(model);
  return reference.kind === 'hub' || reference.location instanceof URL || pathKind(model) !== undefined;
}

function pathKind(path: string): 'file' | 'folder' | undefined {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) return undefined;
  return stats.isDirectory() ? 'folder' : 'file';
}

/**
 * Whether a single argument is clearly a model rather than a text: an existing GGUF or safetensors file or Hugging Face
 * folder, or its URL.
 */
export function isPlainlyModel(text: string): boolean {
  if (text.startsWith('hf:') || /^(https?|file|s3):\/\/\S+(\.gguf|\.safetensors|\/)$/i.test(text)) return true;
  if (text.length > 4096 || text.includes('\0')) return false;
  try {
    const kind = pathKind(text);
    return kind === 'file'
      ? /\.(gguf|safetensors)$/i.test(text)
      : kind === 'folder' && pathKind(join(text, 'config.json')) === 'file';
  } catch {
    return false;
  }
}
