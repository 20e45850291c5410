with source as (

    select * from {{ source('raw', 'suppliers') }}

)

select
    id as supplier_id,
    name as supplier_name,
    country
from source
