/** Why an exchange is refused: told to who has proven itself, and noted in the list of the group. */
import { PlatformError } from '../../core/errors.ts';

/** 403 with 21 and the reason. */
export function refused(reason: string): PlatformError {
  return new PlatformError('forbidden', { message: reason });
}

/** 401 with 30: a proof that is missing or wrong, or no such group; all alike. */
export function unproven(): PlatformError {
  return new PlatformError('badCredentials');
}
