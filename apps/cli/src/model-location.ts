/** Resolves MODEL on the command line: a path, a URL, a repository of the hub, or nothing for the demo model. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import type { ModelLocation } from '@winnow/engine';
import { refuse } from './flags/parse-values.js';
import type { HubRequest } from './io.js';

/** Display name of a model: its own name, except for the demo model, whose path depends on the installation. */
export function displayName(model: string | undefined, ownName: string): string {
  return model === undefined ? 'winnow-tiny' : ownName;
}

export type ModelReference =
  | { readonly kind: 'location'; readonly location: ModelLocation }
  /** `isAmbiguous`: without the prefix `hf:`, so it may have been meant as a path. */
  | { readonly kind: 'hub'; readonly request: HubRequest; readonly isAmbiguous: boolean };

const repoPattern = /^\w[\w.-]*\/\w[\w.-]*$/;

export function parseModelReference(model: string | undefined): ModelReference {
  if (model === undefined) return { kind: 'location', location: demoModelUrl };
  if (model === '') throw refuse('MODEL', 'a path, a URL or a repository', model);
  if (model.startsWith('hf:')) return hubReference(model, model.slice(3));
  if (/^(https?|file):\/\//i.test(model)) return { kind: 'location', location: parseUrl(model) };
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

function pathKind(path: string): 'file' | 'folder' | undefined {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) return undefined;
  return stats.isDirectory() ? 'folder' : 'file';
}

/**
 * Whether a single argument is clearly a model rather than a text: an existing GGUF file or Hugging Face folder, or its
 * URL.
 */
export function isPlainlyModel(text: string): boolean {
  if (text.startsWith('hf:') || /^(https?|file):\/\/\S+(\.gguf|\/)$/i.test(text)) return true;
  if (text.length > 4096 || text.includes('\0')) return false;
  try {
    const kind = pathKind(text);
    return kind === 'file'
      ? /\.gguf$/i.test(text)
      : kind === 'folder' && pathKind(join(text, 'config.json')) === 'file';
  } catch {
    return false;
  }
}
