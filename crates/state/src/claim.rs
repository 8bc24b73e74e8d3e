//! The rules of claims as this crate calls them. They are made in `caravan-volumes`.

use caravan_types::UnixNanos;
use caravan_types::command::{ClaimStep, Refusal};
use caravan_types::volume::{Claim, Volume};

/// The claim after a step; a refusal when the step is not legal in its phase.
pub(crate) fn step(claim: &Claim, step: &ClaimStep, now: UnixNanos) -> Result<Claim, Refusal> {
    Ok(caravan_volumes::claim::step(claim, step, now)?)
}

/// Returns the claim as granted to an allocation, for the first time or after an earlier claim ended. Refused
/// when it does not fit beside the other claims on the volume's storage, or the storage is another volume's
/// (`twins` are the other rows on it).
pub(crate) fn grant(
    volume: &Volume,
    twins: &[&Volume],
    holding: &[&Claim],
    previous: Option<&Claim>,
    wanted: Claim,
    now: UnixNanos,
) -> Result<Claim, Refusal> {
    let claim = caravan_volumes::claim::reserve(previous, wanted, now)
        .map_err(|reason| Refusal::ClaimRefused(reason.to_string()))?;
    caravan_volumes::modes::sole(volume, twins)
        .and_then(|()| caravan_volumes::modes::admit(volume, holding, &claim))
        .map_err(|reason| Refusal::ClaimRefused(reason.to_string()))?;
    Ok(claim)
}
